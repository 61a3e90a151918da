// Norms, activations, rope, elementwise ops, primitives, routing: each kernel of the instruction set that isa_table()
// picks against double arithmetic, at odd sizes, with no, one and many tokens. Attention and sample have tests of their
// own.
#include <algorithm>
#include <functional>

#include "kernel_call.h"

using namespace test;

static constexpr int kWidths[] = {1, 2, 24, 96, 509, 9001};
static constexpr int kRows[] = {0, 1, 5};

static Floats random_table(Random& random, int rows, int cols, float size = 1) {
  return Floats(rows, cols, [&](int, int) { return random.gauss() * size; });
}

static double activation(int kind, double x) {
  switch (kind) {
    case 0:
      return x / (1 + std::exp(-x));
    case 1:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case 2:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));  // = x/2 (1 + tanh)
    case 3:
      return x > 0 ? x : 0;
    case 4:
      return x / (1 + std::exp(-1.702 * x));
    case 5:
      return 1 / (1 + std::exp(-x));
    default:
      return std::tanh(x);
  }
}

static void test_activations() {
  Random random(1);
  for (int kind = 0; kind < 7; kind++) {
    // relative to the result itself over the whole range, where the result is a normal number
    Floats x(1, 40000, [&](int, int c) { return (c - 20000) * 0.005f; }), y(1, 40000);
    call("act", {x, y}, {integer(kind)});
    double worst = 0;
    for (int c = 0; c < x.cols; c++) {
      const double e = activation(kind, x.at(0, c));
      if (std::fabs(e) > 1e-30)
        worst = std::max(worst, std::fabs(y.at(0, c) - e) / std::fabs(e) / (1 + std::fabs(x.at(0, c))));
    }
    CHECK(worst < (kind == 1 || kind == 2 ? 2e-6 : 4e-7), "activation %d: relative error %.3g", kind, worst);
    for (int rows : kRows)
      for (int cols : {2, 24, 509, 9001}) {
        Floats a = random_table(random, rows, cols, 3), b = random_table(random, rows, cols), out(rows, cols);
        call("act_mul", {a, b, out}, {integer(kind)});
        compare("act_mul", out, 1e-6, [&](int r, int c) { return activation(kind, a.at(r, c)) * b.at(r, c); });
        const int groups = 3;
        Floats wide = random_table(random, rows, groups * 2 * cols, 3), narrow(rows, groups * cols);
        call("gated_act", {wide, narrow}, {integer(groups), integer(kind)});
        compare("gated_act", narrow, 2e-6, [&](int r, int c) {
          const int at = c / cols * 2 * cols + c % cols;
          return activation(kind, wide.at(r, at)) * wide.at(r, at + cols);
        });
      }
  }
  Floats odd(1, 3, [](int, int c) { return c == 0 ? NAN : c == 1 ? INFINITY : -INFINITY; }), out(1, 3);
  for (int kind = 0; kind < 7; kind++) {
    call("act", {odd, out}, {integer(kind)});
    CHECK(std::isnan(out.at(0, 0)) && (kind >= 5 ? out.at(0, 1) == 1 : out.at(0, 1) == INFINITY),
          "activation %d of NaN, inf: %g %g", kind, out.at(0, 0), out.at(0, 1));
  }
}

static void test_elementwise() {
  struct Binary {
    const char* op;
    std::function<double(double, double)> f;
  };
  const Binary binary[] = {{"add", [](double a, double b) { return a + b; }},
                           {"mul", [](double a, double b) { return a * b; }},
                           {"sub", [](double a, double b) { return a - b; }},
                           {"div", [](double a, double b) { return a / b; }},
                           {"max", [](double a, double b) { return std::max(a, b); }}};
  struct Unary {
    const char* op;
    std::function<double(double)> f;
  };
  const Unary unary[] = {{"exp", [](double x) { return std::exp(x); }},
                         {"neg", [](double x) { return -x; }},
                         {"recip", [](double x) { return 1 / x; }},
                         {"sqrt", [](double x) { return std::sqrt(x); }},
                         {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
                         {"tanh", [](double x) { return std::tanh(x); }}};
  Random random(2);
  for (int rows : kRows)
    for (int cols : kWidths) {
      Floats a = random_table(random, rows, cols), y(rows, cols);
      for (const Binary& op : binary)
        for (int shape = 0; shape < 3; shape++) {  // whole, one row, one column
          if (rows == 0 && shape == 1) continue;
          Floats b = random_table(random, shape == 1 ? 1 : rows, shape == 2 ? 1 : cols);
          call(op.op, {a, b, y}, {});
          compare(op.op, y, 1e-7,
                  [&](int r, int c) { return op.f(a.at(r, c), b.at(shape == 1 ? 0 : r, shape == 2 ? 0 : c)); });
        }
      for (const Unary& op : unary) {
        call(op.op, {a, y}, {});
        compare(op.op, y, 3e-7, [&](int r, int c) { return op.f(a.at(r, c)); });
      }
      call("scale", {a, y}, {real(0.37)});
      compare("scale", y, 1e-7, [&](int r, int c) { return a.at(r, c) * 0.37f; });
      call("softcap", {a, y}, {real(0.8)});
      compare("softcap", y, 3e-7, [&](int r, int c) { return 0.8 * std::tanh(a.at(r, c) / 0.8); });
      Floats b = random_table(random, rows, 7), joined(rows, cols + 7);
      call("concat", {a, b, joined}, {});
      compare("concat", joined, 0, [&](int r, int c) { return c < cols ? a.at(r, c) : b.at(r, c - cols); });
      std::vector<int32_t> chosen{rows - 1, 0, rows - 1, -1, rows};
      Floats picked(5, cols);
      call("gather", {a, list(chosen), picked}, {});
      compare("gather", picked, 0,
              [&](int r, int c) { return chosen[r] >= 0 && chosen[r] < rows ? a.at(chosen[r], c) : 0.0; });

      Floats sum(rows, 1), top(rows, 1);
      call("reduce_sum", {a, sum}, {});
      call("reduce_max", {a, top}, {});
      call("softmax", {a, y}, {});
      std::vector<double> sums(rows), tops(rows, -INFINITY), shares(rows);
      for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
          sums[r] += a.at(r, c), tops[r] = std::max(tops[r], double(a.at(r, c))), shares[r] += std::exp(a.at(r, c));
      compare("reduce_sum", sum, 1e-6 + 1e-7 * cols, [&](int r, int) { return sums[r]; });
      compare("reduce_max", top, 0, [&](int r, int) { return tops[r]; });
      compare("softmax", y, 1e-6, [&](int r, int c) { return std::exp(a.at(r, c)) / shares[r]; });
    }
  Floats x(1, 200001, [](int, int c) { return (c - 100000) * 0.00105f; }), y(1, 200001);
  double worst = 0;
  call("exp", {x, y}, {});
  for (int c = 0; c < x.cols; c++) {
    const double e = std::exp(double(x.at(0, c)));
    if (e > 1.2e-38 && e < 3.4e38) worst = std::max(worst, std::fabs(y.at(0, c) - e) / e);
    if (e >= 3.41e38) CHECK(y.at(0, c) == INFINITY, "exp(%g) = %g", x.at(0, c), y.at(0, c));
    if (e < 1e-46) CHECK(y.at(0, c) == 0, "exp(%g) = %g", x.at(0, c), y.at(0, c));
  }
  CHECK(worst < 1.5e-7, "exp: relative error %.3g", worst);
}

static void test_norms() {
  Random random(3);
  for (int rows : kRows)
    for (int width : {2, 24, 96, 509, 5120})
      for (int groups : {1, 3})
        for (int with = 0; with < 3; with++) {  // neither w nor b, w, both
          const int cols = width * groups;
          Floats x = random_table(random, rows, cols, 2), y(rows, cols), z(rows, cols);
          for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++) x.at(r, c) += 1.5f;
          std::vector<float> w(width), b(width);
          for (int i = 0; i < width; i++) w[i] = random.gauss(), b[i] = random.gauss();
          call("rms_norm", {x, with ? list(w) : omitted(), y}, {integer(groups), real(1e-3)});
          call("layer_norm", {x, with ? list(w) : omitted(), with > 1 ? list(b) : omitted(), z},
               {integer(groups), real(1e-3)});
          const auto mean = [&](int r, int c, double minus, int power) {
            double sum = 0;
            for (int i = 0; i < width; i++) sum += std::pow(x.at(r, c / width * width + i) - minus, power);
            return sum / width;
          };
          std::vector<double> squares(size_t(rows) * groups), means(squares), variances(squares);
          for (int r = 0; r < rows; r++)
            for (int g = 0; g < groups; g++) {
              const int at = r * groups + g;
              squares[at] = mean(r, g * width, 0, 2), means[at] = mean(r, g * width, 0, 1),
              variances[at] = mean(r, g * width, means[at], 2);
            }
          compare("rms_norm", y, 1e-6, [&](int r, int c) {
            return x.at(r, c) / std::sqrt(squares[r * groups + c / width] + 1e-3) * (with ? w[c % width] : 1);
          });
          compare("layer_norm", z, 2e-6, [&](int r, int c) {
            const int at = r * groups + c / width;
            return (x.at(r, c) - means[at]) / std::sqrt(variances[at] + 1e-3) * (with ? w[c % width] : 1) +
                   (with > 1 ? b[c % width] : 0);
          });
          if (groups == 1 && with == 1) {
            Floats a = random_table(random, rows, cols), sum(rows, cols), both(rows, cols), apart(rows, cols);
            call("add_rms_norm", {a, x, list(w), sum, both}, {real(1e-3)});
            compare("add_rms_norm sum", sum, 0, [&](int r, int c) { return a.at(r, c) + x.at(r, c); });
            call("rms_norm", {sum, list(w), apart}, {integer(1), real(1e-3)});
            compare("add_rms_norm", both, 0, [&](int r, int c) { return apart.at(r, c); });
          }
        }
}

static void test_rope() {
  Random random(4);
  for (int rows : kRows)
    for (int half : {1, 12, 17, 64})
      for (int rest : {0, 5})
        for (int interleaved : {0, 1}) {
          const int heads = 3, width = 2 * half + rest;
          std::vector<int32_t> positions(rows), variant(rows);
          for (int t = 0; t < rows; t++) positions[t] = t == 0 ? 131071 : random.below(5000), variant[t] = t % 2;
          Floats freq(2, half, [&](int p, int i) { return std::pow(10000.0 + p, -double(i) / half); });
          std::vector<float> factor{1.0f, 1.25f};
          Floats table(rows, 2 * half), x = random_table(random, rows, heads * width), y(rows, heads * width);
          call("rope_table", {list(positions), list(variant), freq, list(factor), table}, {});
          compare("rope_table", table, 3e-7, [&](int t, int n) {
            const double angle = float(positions[t]) * freq.at(variant[t], n % half);
            return (n < half ? std::cos(double(float(angle))) : std::sin(double(float(angle)))) * factor[variant[t]];
          });
          call("rope", {x, table, y}, {integer(heads), integer(interleaved)});
          compare("rope", y, 1e-6, [&](int t, int n) {
            const int i = n % width, base = n - i;
            if (i >= 2 * half) return double(x.at(t, n));
            const int pair = interleaved ? i / 2 : i % half;
            const bool second = interleaved ? i % 2 : i >= half;
            const double a = x.at(t, base + (interleaved ? 2 * pair : pair)),
                         b = x.at(t, base + (interleaved ? 2 * pair + 1 : pair + half));
            const double cos = table.at(t, pair), sin = table.at(t, half + pair);
            return second ? b * cos + a * sin : a * cos - b * sin;
          });
        }
}

static void test_moe() {
  Random random(5);
  for (int rows : kRows)
    for (int experts : {1, 7, 60, 256})
      for (int k : {1, 4, 8}) {
        if (k > experts) continue;
        for (int scoring = 0; scoring < 3; scoring++)
          for (int renormalize : {0, 1}) {
            Floats logits(rows, experts, [&](int r, int) {
              return r == 1 ? float(random.below(3)) : random.gauss();
            });  // row 1: many ties
            Ints chosen(rows, k);
            Floats weights(rows, k);
            call("moe_route", {logits, chosen, weights},
                 {integer(k), integer(scoring), integer(renormalize), real(2.5)});
            std::vector<std::vector<double>> expected(rows);
            for (int r = 0; r < rows; r++) {
              std::vector<int> order(experts);
              for (int e = 0; e < experts; e++) order[e] = e;
              std::stable_sort(order.begin(), order.end(),
                               [&](int a, int b) { return logits.at(r, a) > logits.at(r, b); });
              double all = 0, kept = 0;
              for (int e = 0; e < experts; e++) all += std::exp(logits.at(r, e));
              for (int j = 0; j < k; j++) {
                CHECK(chosen.at(r, j) == order[j], "moe_route: row %d slot %d: expert %d, expected %d", r, j,
                      chosen.at(r, j), order[j]);
                const double v = logits.at(r, order[j]);
                expected[r].push_back(scoring == 0   ? std::exp(v) / all
                                      : scoring == 1 ? std::exp(v)
                                                     : 1 / (1 + std::exp(-v)));
                kept += expected[r].back();
              }
              for (double& w : expected[r]) w *= 2.5 / (renormalize || scoring == 1 ? kept : 1);
            }
            compare("moe_route", weights, 1e-6, [&](int r, int j) { return expected[r][j]; });
          }
        const int width = 24 + k;
        Floats y = random_table(random, rows, k * width), w = random_table(random, rows, k), out(rows, width);
        call("moe_combine", {y, w, out}, {});
        compare("moe_combine", out, 1e-6, [&](int r, int c) {
          double sum = 0;
          for (int j = 0; j < k; j++) sum += double(w.at(r, j)) * y.at(r, j * width + c);
          return sum;
        });
      }
  Floats bad(2, 4, [](int r, int c) { return r == 0 && c == 2 ? 1.0f : NAN; }), weights(2, 2);
  Ints chosen(2, 2);
  for (int scoring = 0; scoring < 3; scoring++) {
    call("moe_route", {bad, chosen, weights}, {integer(2), integer(scoring), integer(1), real(1)});
    CHECK(chosen.at(0, 0) == 2 && chosen.at(0, 1) == 0 && weights.at(0, 0) == 1 && weights.at(0, 1) == 0,
          "moe_route with NaN, scoring %d", scoring);
    CHECK(chosen.at(1, 0) == 0 && chosen.at(1, 1) == 1 && std::isfinite(weights.at(1, 0)),
          "moe_route of NaN only, scoring %d", scoring);
  }
}

int main() {
  test_activations();
  test_elementwise();
  test_norms();
  test_rope();
  test_moe();
  return report();
}
