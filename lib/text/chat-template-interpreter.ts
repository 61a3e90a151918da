// Runs the syntax tree that @huggingface/jinja parses, with Python's semantics and under a budget.
// The package's own interpreter is not used: it prints JSON where Python prints reprs, compares loosely, lacks the
// constructs of real templates and cannot be bounded. Scoping follows jinja2: a loop body is a scope of its own per
// iteration, a macro sees the scope in which it was defined.
import { applyFilter } from "./chat-template-filters.ts";
import { globals } from "./chat-template-globals.ts";
import { Args, methodOf } from "./chat-template-methods.ts";
import { binary, slice, unary } from "./chat-template-operators.ts";
import { testValue } from "./chat-template-predicates.ts";
import type { ForNode, MacroNode, MemberNode, Node, SliceNode, Target } from "./chat-template-syntax.ts";
import {
  type Budget,
  type Callable,
  characters,
  equals,
  fault,
  itemsOf,
  type Kwargs,
  Namespace,
  str,
  Tuple,
  truthy,
  typeName,
  Undefined,
  type Value,
} from "./chat-template-values.ts";

class Scope {
  readonly vars: Map<string, Value>;
  readonly #parent: Scope | undefined;

  constructor(parent?: Scope, vars: Iterable<[string, Value]> = []) {
    this.#parent = parent;
    this.vars = new Map(vars);
  }

  get(name: string): Value {
    for (let scope: Scope | undefined = this; scope; scope = scope.#parent) {
      const value = scope.vars.get(name);
      if (value !== undefined) return value;
    }
    return new Undefined(`'${name}' is undefined`);
  }
}

/** How a list of statements ended. */
type Ending = "break" | "continue" | undefined;

const noKwargs: Kwargs = new Map();
const maxDepth = 400;

/** Renders a program. Throws TemplateFault and RaisedByTemplate; a RangeError where the stack ends. */
export function runProgram(program: Node, variables: Map<string, Value>, budget: Budget): string {
  const scope = new Scope(new Scope(undefined, globals(budget)), variables);
  return new Run(budget).block([program], scope);
}

class Run {
  readonly #budget: Budget;
  #depth = 0;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  /** The text that statements produce. */
  block(nodes: Node[], scope: Scope): string {
    const out: string[] = [];
    this.#statements(nodes, scope, out);
    return out.join("");
  }

  #statements(nodes: Node[], scope: Scope, out: string[]): Ending {
    if (++this.#depth > maxDepth) fault("the template is nested too deeply");
    for (const node of nodes) {
      const ending = this.#statement(node, scope, out);
      if (ending) {
        this.#depth--;
        return ending;
      }
    }
    this.#depth--;
    return undefined;
  }

  #statement(node: Node, scope: Scope, out: string[]): Ending {
    this.#budget.steps();
    switch (node.type) {
      case "Program":
        return this.#statements(node.body, scope, out);
      case "If":
        return this.#statements(truthy(this.#eval(node.test, scope)) ? node.body : node.alternate, scope, out);
      case "For":
        this.#loop(node, scope, out);
        return undefined;
      case "Set":
        this.#assign(
          node.assignee,
          node.value ? this.#eval(node.value, scope) : this.block(node.body, new Scope(scope)),
          scope,
        );
        return undefined;
      case "Macro":
        scope.vars.set(node.name.value, this.#macro(node, scope));
        return undefined;
      case "CallStatement": {
        const [args, kwargs] = this.#arguments(node.call.args, scope);
        const caller = this.#macro({ args: node.callerArgs ?? [], body: node.body }, scope);
        this.#emit(
          this.#call(this.#eval(node.call.callee, scope), args, new Map([...kwargs, ["caller", caller]])),
          out,
        );
        return undefined;
      }
      case "FilterStatement":
        this.#emit(this.#filter(node.filter, this.block(node.body, new Scope(scope)), scope), out);
        return undefined;
      case "Break":
        return "break";
      case "Continue":
        return "continue";
      case "Comment":
        return undefined;
      default:
        this.#emit(this.#eval(node, scope), out);
        return undefined;
    }
  }

  #emit(value: Value, out: string[]): void {
    const text = str(value, this.#budget);
    this.#budget.chars(text.length);
    out.push(text);
  }

  #loop(node: ForNode, outer: Scope, out: string[]): void {
    const { iterable, loopvar } = node;
    const [source, test] = iterable.type === "SelectExpression" ? [iterable.lhs, iterable.test] : [iterable, undefined];
    let items = itemsOf(this.#eval(source, outer), this.#budget);
    if (test) {
      items = items.filter((item) => {
        const scope = new Scope(outer);
        this.#assign(loopvar, item, scope);
        return truthy(this.#eval(test, scope));
      });
    }
    const state: { changed?: Value } = {};
    for (const [index, item] of items.entries()) {
      this.#budget.steps();
      const scope = new Scope(outer);
      this.#assign(loopvar, item, scope);
      scope.vars.set("loop", this.#loopVariable(items, index, state));
      if (this.#statements(node.body, scope, out) === "break") break;
    }
    if (items.length === 0) this.#statements(node.defaultBlock, outer, out);
  }

  #loopVariable(items: Value[], index: number, state: { changed?: Value }): Value {
    const none = (what: string) => new Undefined(`there is no ${what} item`);
    const cycle: Callable = (args) => args[index % args.length] ?? fault("no items for cycling given");
    const changed: Callable = (args) => {
      const isSame = state.changed !== undefined && equals(state.changed, args, this.#budget);
      state.changed = args;
      return !isSame;
    };
    return new Namespace(
      new Map<string, Value>([
        ["index", index + 1],
        ["index0", index],
        ["revindex", items.length - index],
        ["revindex0", items.length - index - 1],
        ["first", index === 0],
        ["last", index === items.length - 1],
        ["length", items.length],
        ["previtem", items[index - 1] ?? none("previous")],
        ["nextitem", items[index + 1] ?? none("next")],
        ["cycle", cycle],
        ["changed", changed],
      ]),
    );
  }

  #assign(target: Target, value: Value, scope: Scope): void {
    if (target.type === "Identifier") {
      scope.vars.set(target.value, value);
      return;
    }
    if (target.type === "TupleLiteral") {
      const items = itemsOf(value, this.#budget);
      const wanted = target.value.length;
      if (items.length > wanted) fault(`too many values to unpack (expected ${wanted})`);
      if (items.length < wanted) fault(`not enough values to unpack (expected ${wanted}, got ${items.length})`);
      for (const [i, part] of target.value.entries()) this.#assign(part, items[i]!, scope);
      return;
    }
    const object = this.#eval(target.object, scope);
    if (!(object instanceof Namespace) || target.property.type !== "Identifier") {
      fault("cannot assign attribute on non-namespace object");
    }
    object.entries.set(target.property.value, value);
  }

  #macro(node: MacroNode, definedIn: Scope): Callable {
    return (args, kwargs) => {
      const scope = new Scope(definedIn);
      const rest = new Map(kwargs);
      const defaults: [string, Node][] = [];
      for (const [i, parameter] of node.args.entries()) {
        const name = parameter.type === "Identifier" ? parameter.value : parameter.key.value;
        const given = args[i] ?? rest.get(name);
        rest.delete(name);
        if (given === undefined && parameter.type !== "Identifier") defaults.push([name, parameter.value]);
        scope.vars.set(name, given ?? new Undefined(`parameter '${name}' was not provided`));
      }
      for (const [name, value] of defaults) scope.vars.set(name, this.#eval(value, scope));
      const caller = rest.get("caller");
      rest.delete("caller");
      if (caller !== undefined) scope.vars.set("caller", caller);
      scope.vars.set("varargs", Tuple.from(args.slice(node.args.length)));
      scope.vars.set("kwargs", rest as Map<Value, Value>);
      return this.block(node.body, scope);
    };
  }

  #eval(node: Node, scope: Scope): Value {
    this.#budget.steps();
    switch (node.type) {
      case "IntegerLiteral":
      case "FloatLiteral":
      case "StringLiteral":
        return node.value;
      case "Identifier":
        return scope.get(node.value);
      case "ArrayLiteral":
        return node.value.map((item) => this.#eval(item, scope));
      case "TupleLiteral":
        return Tuple.from(node.value.map((item) => this.#eval(item, scope)));
      case "ObjectLiteral":
        return new Map([...node.value].map(([key, value]) => [this.#eval(key, scope), this.#eval(value, scope)]));
      case "MemberExpression":
        return this.#member(node, scope);
      case "CallExpression": {
        const callee = this.#eval(node.callee, scope);
        return this.#call(callee, ...this.#arguments(node.args, scope));
      }
      case "UnaryExpression":
        return unary(node.operator.value, this.#eval(node.argument, scope));
      case "BinaryExpression": {
        const left = this.#eval(node.left, scope);
        if (node.operator.value === "and") return truthy(left) ? this.#eval(node.right, scope) : left;
        if (node.operator.value === "or") return truthy(left) ? left : this.#eval(node.right, scope);
        return binary(node.operator.value, left, this.#eval(node.right, scope), this.#budget);
      }
      case "FilterExpression":
        return this.#filter(node.filter, this.#eval(node.operand, scope), scope);
      case "TestExpression":
        return testValue(node.test.value, this.#eval(node.operand, scope), [], this.#budget) !== node.negate;
      case "SelectExpression":
        return truthy(this.#eval(node.test, scope))
          ? this.#eval(node.lhs, scope)
          : new Undefined("the inline if-expression evaluated to false and no else section was defined.");
      case "Ternary":
        return this.#eval(truthy(this.#eval(node.condition, scope)) ? node.trueExpr : node.falseExpr, scope);
      default:
        return fault(`${node.type} where an expression belongs`);
    }
  }

  #filter(filter: Node, value: Value, scope: Scope): Value {
    const [name, args, kwargs]: [Node, Value[], Kwargs] =
      filter.type === "CallExpression"
        ? [filter.callee, ...this.#arguments(filter.args, scope)]
        : [filter, [], noKwargs];
    if (name.type !== "Identifier") fault("a filter must be a name");
    return applyFilter(name.value, value, new Args(args, kwargs, this.#budget));
  }

  #arguments(nodes: Node[], scope: Scope): [Value[], Kwargs] {
    const args: Value[] = [];
    const kwargs = new Map<string, Value>();
    for (const node of nodes) {
      if (node.type === "KeywordArgumentExpression") kwargs.set(node.key.value, this.#eval(node.value, scope));
      else if (node.type === "SpreadExpression")
        for (const item of itemsOf(this.#eval(node.argument, scope), this.#budget)) args.push(item);
      else if (node.type === "KeywordSpreadExpression") {
        const value = this.#eval(node.argument, scope);
        if (!(value instanceof Map)) fault("argument after ** must be a mapping");
        for (const [key, item] of value) kwargs.set(str(key, this.#budget), item);
      } else args.push(this.#eval(node, scope));
    }
    return [args, kwargs];
  }

  #call(callee: Value, args: Value[], kwargs: Kwargs): Value {
    if (typeof callee === "function") return callee(args, kwargs);
    return fault(callee instanceof Undefined ? callee.message : `'${typeName(callee)}' object is not callable`);
  }

  #member(node: MemberNode, scope: Scope): Value {
    const object = this.#eval(node.object, scope);
    const { property } = node;
    if (property.type === "SliceExpression") return this.#slice(object, property, scope);
    if (node.computed || property.type !== "Identifier") return this.#item(object, this.#eval(property, scope));
    // `a.b` looks for an attribute first, `a["b"]` for an item first.
    const name = property.value;
    return methodOf(object, name, this.#budget) ?? this.#item(object, name);
  }

  #item(object: Value, key: Value): Value {
    if (object instanceof Undefined) fault(object.message);
    if (object instanceof Map && object.has(key)) return object.get(key)!;
    if (object instanceof Namespace && typeof key === "string" && object.entries.has(key))
      return object.entries.get(key)!;
    if (typeof key === "number" && (typeof object === "string" || Array.isArray(object))) {
      const list = typeof object === "string" ? characters(object, this.#budget) : object;
      const found = list[key < 0 ? list.length + key : key];
      return found ?? new Undefined(`${typeName(object)} object has no element ${key}`);
    }
    const method = typeof key === "string" ? methodOf(object, key, this.#budget) : undefined;
    return method ?? new Undefined(`'${typeName(object)} object' has no attribute '${str(key, this.#budget)}'`);
  }

  #slice(object: Value, node: SliceNode, scope: Scope): Value {
    const [start, stop, step] = [node.start, node.stop, node.step].map((part) =>
      part ? this.#eval(part, scope) : null,
    );
    return slice(object, [start!, stop!, step!], this.#budget);
  }
}
