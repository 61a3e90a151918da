// The syntax tree of a chat template, as @huggingface/jinja parses it; the package does not export these types.
import { parse, tokenize } from "@huggingface/jinja";

export type Target = { type: "Identifier"; value: string } | { type: "TupleLiteral"; value: Target[] } | MemberNode;
export type Parameter = { type: "Identifier"; value: string } | KeywordNode;
export interface MemberNode {
  type: "MemberExpression";
  object: Node;
  property: Node;
  computed: boolean;
}
export interface KeywordNode {
  type: "KeywordArgumentExpression";
  key: { value: string };
  value: Node;
}
export interface CallNode {
  type: "CallExpression";
  callee: Node;
  args: Node[];
}
export interface ForNode {
  type: "For";
  loopvar: Target;
  iterable: Node;
  body: Node[];
  defaultBlock: Node[];
}
export interface MacroNode {
  args: Parameter[];
  body: Node[];
}
export interface SliceNode {
  type: "SliceExpression";
  start?: Node;
  stop?: Node;
  step?: Node;
}

/** The nodes of the parser's tree, as far as a template can hold them. */
export type Node =
  | { type: "Program"; body: Node[] }
  | { type: "If"; test: Node; body: Node[]; alternate: Node[] }
  | ForNode
  | { type: "Break" | "Continue" | "Comment" }
  | { type: "Set"; assignee: Target; value: Node | null; body: Node[] }
  | (MacroNode & { type: "Macro"; name: { value: string } })
  | { type: "CallStatement"; call: CallNode; callerArgs: Parameter[] | null; body: Node[] }
  | { type: "FilterStatement"; filter: Node; body: Node[] }
  | { type: "IntegerLiteral" | "FloatLiteral"; value: number }
  | { type: "StringLiteral" | "Identifier"; value: string }
  | { type: "ArrayLiteral" | "TupleLiteral"; value: Node[] }
  | { type: "ObjectLiteral"; value: Map<Node, Node> }
  | MemberNode
  | CallNode
  | SliceNode
  | KeywordNode
  | { type: "SpreadExpression" | "KeywordSpreadExpression"; argument: Node }
  | { type: "UnaryExpression"; operator: { value: string }; argument: Node }
  | { type: "BinaryExpression"; operator: { value: string }; left: Node; right: Node }
  | { type: "FilterExpression"; operand: Node; filter: Node }
  | { type: "TestExpression"; operand: Node; negate: boolean; test: { value: string } }
  | { type: "SelectExpression"; lhs: Node; test: Node }
  | { type: "Ternary"; condition: Node; trueExpr: Node; falseExpr: Node };

/** Parses a template with the options of transformers (trim_blocks, lstrip_blocks). Throws SyntaxError or Error. */
export function parseTemplate(source: string): Node {
  return parse(tokenize(source, { trim_blocks: true, lstrip_blocks: true })) as unknown as Node;
}
