// A model's chat template: messages in, prompt text out, as transformers' `apply_chat_template` renders it.
// Templates come from model files, so they run under a budget of steps, text and time; messages come from users, so
// `renderSegments` says which special tokens the template wrote and which are only text that a user typed.
import { InferxError } from "../base/errors.ts";
import { RaisedByTemplate } from "./chat-template-globals.ts";
import { runProgram } from "./chat-template-interpreter.ts";
import { strip } from "./chat-template-methods.ts";
import { chooseMarker, findMarks, type Mark, markStrings, segmentsOf } from "./chat-template-segments.ts";
import { type Node, parseTemplate } from "./chat-template-syntax.ts";
import { Budget, toValue } from "./chat-template-values.ts";

export interface ChatMessage {
  role: string;
  content?: unknown;
  [key: string]: unknown;
}

export interface ChatTemplateTokens {
  bosToken?: string | undefined;
  eosToken?: string | undefined;
  unkToken?: string | undefined;
  padToken?: string | undefined;
  /** Further tokens: `imageToken` is `image_token` in the template. */
  [name: string]: string | undefined;
}

export interface RenderOptions {
  /** JSON schemas of functions, as in the OpenAI API. */
  tools?: readonly unknown[] | null | undefined;
  documents?: readonly unknown[] | null | undefined;
  /** Ends the prompt with the beginning of the assistant's answer; default true, false with `continueFinalMessage`. */
  addGenerationPrompt?: boolean | undefined;
  /** Leaves the last message open, for the model to go on with it; default false. */
  continueFinalMessage?: boolean | undefined;
  /** Further variables of the template, `enable_thinking` and the like. */
  kwargs?: Record<string, unknown> | undefined;
}

/** A part of a prompt. Where `fromTemplate` is false the text is a user's and must not be read as a special token. */
export interface PromptSegment {
  text: string;
  fromTemplate: boolean;
}

const maxSourceChars = 256 << 10;
const maxSteps = 3_000_000;
const minTextBudget = 4 << 20;
/** A message's text is copied by each operation on it; published templates copy it fewer than 10 times. */
const copiesOfInput = 64;
const maxRenderMs = 1200;

export class ChatTemplate {
  readonly source: string;
  readonly #program: Node;
  readonly #tokens: Record<string, string>;
  #contentFormat: "string" | "parts" | undefined;

  /**
   * `source` is Jinja; `tokens` are the texts of special tokens, `bosToken` being `bos_token` in the template.
   * Errors: IX_TEMPLATE when the source cannot be parsed.
   */
  constructor(source: string, tokens: ChatTemplateTokens = {}) {
    this.source = source;
    // The parser looks at runs of white space again for each of their characters.
    if (source.length > maxSourceChars || /\s{1000}/.test(source)) {
      throw new InferxError("IX_TEMPLATE", `the chat template is too long (${source.length} characters)`);
    }
    try {
      this.#program = parseTemplate(source);
    } catch (cause) {
      throw new InferxError(
        "IX_TEMPLATE",
        `the chat template cannot be parsed: ${(cause as Error).message}`,
        {},
        { cause },
      );
    }
    const named = Object.entries(tokens).filter((entry): entry is [string, string] => entry[1] !== undefined);
    this.#tokens = Object.fromEntries(
      named.map(([name, text]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), text]),
    );
  }

  /**
   * The prompt as one text.
   * Errors: IX_TEMPLATE with the text of `raise_exception` or the reason; also when a bound on work is met.
   */
  render(messages: readonly ChatMessage[], options: RenderOptions = {}): string {
    return this.#renderData(templateData(messages, options), performance.now() + maxRenderMs);
  }

  /**
   * The prompt in parts: an occurrence of one of `specialTokens` that stems from a message, a tool or a variable
   * rather than from the template is a part of its own with `fromTemplate: false`. The texts joined are `render()`'s.
   *
   * How: such occurrences are marked with a private character and the template is rendered again; the marks in the
   * result tell where they went. Where a mark would change what the template does (qwen3 splits an assistant's text at
   * `</think>`), that occurrence stays unmarked and counts as the template's.
   * Pass the same array for each request: what is derived from it is kept with it.
   * Errors: as `render`.
   */
  renderSegments(
    messages: readonly ChatMessage[],
    options: RenderOptions,
    specialTokens: readonly string[],
  ): PromptSegment[] {
    const deadline = performance.now() + maxRenderMs;
    const data = templateData(messages, options);
    const text = this.#renderData(data, deadline);
    const marks = findMarks(data, specialTokens);
    if (marks.length === 0) return [{ text, fromTemplate: true }];
    const marker = chooseMarker(data.json + this.source);
    let marked = text;
    const kept: Mark[] = [];
    /** Keeps the marks that make no difference to the text, halving where some do. */
    const keep = (tried: readonly Mark[]): void => {
      const withMarks = this.#tryMarks(data, [...kept, ...tried], marker, deadline);
      if (withMarks?.replaceAll(marker, "") === text) {
        kept.push(...tried);
        marked = withMarks;
      } else if (tried.length > 1) {
        keep(tried.slice(0, tried.length >> 1));
        keep(tried.slice(tried.length >> 1));
      }
    };
    keep(marks);
    return segmentsOf(marked, marker, specialTokens);
  }

  /** The text with marks in the data; undefined where the template refuses them. */
  #tryMarks(data: TemplateData, marks: readonly Mark[], marker: string, deadline: number): string | undefined {
    try {
      return this.#renderData(markStrings(data, marks, marker), deadline);
    } catch (error) {
      if (performance.now() > deadline) throw error;
      return undefined;
    }
  }

  /** Whether the template wants a message's content as text or as a list of parts; found by rendering both. */
  get contentFormat(): "string" | "parts" {
    this.#contentFormat ??=
      this.#shows("probe-text") || !this.#shows([{ type: "text", text: "probe-text" }]) ? "string" : "parts";
    return this.#contentFormat;
  }

  #shows(content: unknown): boolean {
    try {
      // The text alone must appear: a list that is printed as such is not understood.
      const text = this.render([{ role: "user", content }], { addGenerationPrompt: false });
      return text.includes("probe-text") && !text.includes("'probe-text'") && !text.includes('"probe-text"');
    } catch {
      return false;
    }
  }

  #renderData(data: TemplateData, deadline: number): string {
    if (!data.continueFinalMessage) return this.#run(data, data.messages, deadline);
    // Twice, since renderSegments may use the first for its marks.
    const marker = `${chooseMarker(chooseMarker(data.json + this.source) + data.json + this.source)} `;
    const text = this.#run(data, openFinalMessage(data.messages, marker), deadline);
    const end = text.lastIndexOf(marker.trim());
    if (end < 0)
      throw new InferxError("IX_TEMPLATE", "the template drops the final message, so it cannot be continued");
    // A template that trims the message took the marker's blank, so it would have taken those before it.
    return text.startsWith(marker, end) ? text.slice(0, end) : strip(text.slice(0, end), undefined, "r");
  }

  #run(data: TemplateData, messages: readonly ChatMessage[], deadline: number): string {
    const chars = minTextBudget + copiesOfInput * data.json.length;
    try {
      const variables = Object.entries({ ...this.#tokens, ...data.variables, messages });
      const values = new Map(variables.map(([name, value]) => [name, toValue(value)]));
      return runProgram(this.#program, values, new Budget({ steps: maxSteps, chars, deadline }));
    } catch (cause) {
      if (cause instanceof RaisedByTemplate)
        throw new InferxError("IX_TEMPLATE", cause.message, { raised: true }, { cause });
      // Also RangeError: a template may recurse without end, or ask for a text longer than a string can be.
      throw new InferxError("IX_TEMPLATE", `the chat template failed: ${(cause as Error).message}`, {}, { cause });
    }
  }
}

/** Everything that callers supply, and nothing that the template or the model does. */
export interface TemplateData {
  messages: readonly ChatMessage[];
  variables: Record<string, unknown>;
  continueFinalMessage: boolean;
  /** Messages and variables as JSON, without marks. */
  json: string;
}

function templateData(messages: readonly ChatMessage[], options: RenderOptions): TemplateData {
  const { tools, documents, continueFinalMessage = false, kwargs = {} } = options;
  if (continueFinalMessage && options.addGenerationPrompt) {
    throw new InferxError("IX_INVALID_ARGUMENT", "addGenerationPrompt and continueFinalMessage exclude each other");
  }
  const add_generation_prompt = options.addGenerationPrompt ?? !continueFinalMessage;
  const variables = { ...kwargs, tools: tools ?? null, documents: documents ?? null, add_generation_prompt };
  try {
    return { messages, variables, continueFinalMessage, json: JSON.stringify({ messages, variables }) };
  } catch (cause) {
    throw new InferxError("IX_INVALID_ARGUMENT", "messages and variables must be JSON-like data", {}, { cause });
  }
}

/** Appends `marker` to the text that is to be continued. */
function openFinalMessage(messages: readonly ChatMessage[], marker: string): ChatMessage[] {
  const last = messages.at(-1);
  const content = last?.content;
  if (typeof content === "string") return [...messages.slice(0, -1), { ...last!, content: content + marker }];
  if (Array.isArray(content)) {
    const at = content.findLastIndex((part) => typeof part?.text === "string");
    if (at >= 0) {
      const open = content.with(at, { ...content[at], text: content[at].text + marker });
      return [...messages.slice(0, -1), { ...last!, content: open }];
    }
  }
  throw new InferxError("IX_TEMPLATE", "the final message has no text to continue");
}
