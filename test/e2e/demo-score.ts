// Whether an answer to a question of models/demo/skills.jsonl is right: `score` of models/demo/training/corpus.py in TypeScript.

export interface Skill {
  id: string;
  skill: string;
  messages: { role: string; content: string }[];
  tools?: unknown[];
  answer: string;
  check: "exact" | "json" | "tool" | "list";
}

/** Of CATS and CAT_PLURAL in models/demo/training/words.py the categories that the questions name. */
const categories: Record<string, string[]> = {
  trees: "ash beech birch cedar elm fir maple oak pine willow".split(" "),
  jobs: "baker beekeeper blacksmith builder candlemaker carpenter clockmaker cobbler cook dancer dentist doctor farmer ferryman fisher gardener innkeeper jeweller judge knight librarian mapmaker miller musician nurse painter pilot postman potter sailor shepherd shoemaker singer stonemason tailor teacher toymaker weaver writer".split(
    " ",
  ),
  countries:
    "austria chile china cuba denmark egypt finland france germany greece hungary iceland ireland italy japan kenya norway peru poland portugal russia spain sweden thailand vietnam".split(
      " ",
    ),
  colours: "black blue brown gold green grey orange pink purple red silver turquoise violet white yellow".split(" "),
  tools: "axe chisel drill hammer pliers rake saw screwdriver spade wrench".split(" "),
  metals: "copper gold iron lead silver steel tin zinc".split(" "),
};

/** Equal as Python's parsed JSON is: objects without regard to the order of keys. */
function equal(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const [x, y] = [a as Record<string, unknown>, b as Record<string, unknown>];
  const keys = Object.keys(x);
  return keys.length === Object.keys(y).length && keys.every((key) => Object.hasOwn(y, key) && equal(x[key], y[key]));
}

const toolCalls = (text: string): unknown[] =>
  text
    .split("<tool_call>")
    .slice(1)
    .map((part) => JSON.parse(part.split("</tool_call>")[0]!));

function listItems(text: string): unknown[] {
  if (text.startsWith("[")) return JSON.parse(text) as unknown[];
  if (text.startsWith("1.")) return text.split("\n").map((line) => line.slice(line.indexOf(". ") + 2));
  return text.replace(/\.+$/, "").replaceAll(" and ", ", ").split(", ");
}

function rightList(question: string, want: string, got: string): boolean {
  const [a, b] = [listItems(want), listItems(got)];
  const category = Object.keys(categories).find((name) => question.includes(name));
  if (!category) throw new Error(`no category in ${question}`);
  if (!b.every((item) => typeof item === "string")) return false;
  const lower = b.map((item) => (item as string).toLowerCase());
  const numberedOrJson = (text: string) => text.startsWith("1.") || text.startsWith('["');
  return (
    a.length === b.length &&
    new Set(lower).size === b.length &&
    lower.every((item) => categories[category]!.includes(item)) &&
    numberedOrJson(want) === numberedOrJson(got)
  );
}

export function score(item: Skill, answer: string): boolean {
  const [want, got] = [item.answer.trim(), answer.trim()];
  if (want === got) return true;
  try {
    if (item.check === "json") return equal(JSON.parse(want), JSON.parse(got));
    if (item.check === "tool") return equal(toolCalls(want), toolCalls(got));
    if (item.check === "list") return rightList(item.messages.at(-1)!.content, want, got);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error; // not JSON: not right
  }
  return false;
}
