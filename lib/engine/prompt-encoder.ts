// Prompts and messages to token ids and back: the tokenizer and the chat template of one checkpoint.
import type { NativeTextBinding } from "../../types/native-text.d.ts";
import { InferxError } from "../base/errors.ts";
import { checkString } from "../base/options.ts";
import type { Checkpoint } from "../compile/model-source.ts";
import { type ChatMessage, ChatTemplate, type RenderOptions } from "../text/chat-template.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import type { SharedTokenizer } from "./text-sink.ts";

export interface EncodeOptions {
  addSpecial?: boolean | undefined;
  parseSpecial?: boolean | undefined;
}

export interface ChatEncodeOptions {
  tools?: readonly unknown[] | undefined;
  addGenerationPrompt?: boolean | undefined;
  continueFinalMessage?: boolean | undefined;
  templateVariables?: Readonly<Record<string, unknown>> | undefined;
}

/** Longest prompt text, in characters: more cannot fit any context, and encoding it would only cost time. */
const maxTextLength = 64 << 20;

export class PromptEncoder {
  /** Undefined: the checkpoint has none, and prompts are token ids. */
  readonly tokenizer: Tokenizer | undefined;
  readonly #template: ChatTemplate | undefined;

  /** @throws IX_TOKENIZER, IX_TEMPLATE */
  constructor(binding: NativeTextBinding, checkpoint: Checkpoint, templateSource: string | undefined) {
    this.tokenizer = checkpoint.tokenizer && Tokenizer.from(binding, checkpoint.tokenizer);
    const source = templateSource === undefined ? checkpoint.chatTemplate : checkString("chatTemplate", templateSource);
    this.#template = source === undefined ? undefined : new ChatTemplate(source, checkpoint.specialTokens);
  }

  /** Token ids of a prompt; ids pass as they are. */
  async encode(prompt: string | readonly number[], options: EncodeOptions): Promise<Int32Array> {
    if (typeof prompt !== "string") return tokenIds(prompt);
    return this.#tokenizer().encodeAsync(checkText(prompt), {
      addSpecial: options.addSpecial ?? true,
      parseSpecial: options.parseSpecial ?? false,
    });
  }

  tokenize(text: string, options: EncodeOptions): Int32Array {
    return this.#tokenizer().encode(checkText(text), {
      addSpecial: options.addSpecial ?? true,
      parseSpecial: options.parseSpecial ?? false,
    });
  }

  detokenize(tokens: readonly number[], keepSpecial: boolean): string {
    return this.#tokenizer().decode(tokenIds(tokens), { keepSpecial });
  }

  renderChat(messages: string | readonly ChatMessage[], options: ChatEncodeOptions): string {
    return this.#chatTemplate().render(messageList(messages), renderOptions(options));
  }

  /** Only text that the template wrote can become special tokens. */
  async encodeChat(messages: string | readonly ChatMessage[], options: ChatEncodeOptions): Promise<Int32Array> {
    const tokenizer = this.#tokenizer();
    const segments = this.#chatTemplate().renderSegments(
      messageList(messages),
      renderOptions(options),
      tokenizer.specialTokens,
    );
    return tokenizer.encodeSegmentsAsync(
      segments.map(({ text, fromTemplate }) => ({ text, parseSpecial: fromTemplate })),
    );
  }

  shared(): SharedTokenizer | undefined {
    return this.tokenizer?.share();
  }

  #tokenizer(): Tokenizer {
    if (!this.tokenizer) throw new InferxError("IX_TOKENIZER", "the model has no tokenizer: give prompts as token ids");
    return this.tokenizer;
  }

  #chatTemplate(): ChatTemplate {
    if (!this.#template)
      throw new InferxError(
        "IX_TEMPLATE",
        "the model has no chat template: pass `chatTemplate` to Model.load, or use generate()",
      );
    return this.#template;
  }
}

function checkText(text: string): string {
  if (text.length > maxTextLength)
    throw new InferxError("IX_CONTEXT_OVERFLOW", `a prompt of ${text.length} characters exceeds any context`, {
      characters: text.length,
    });
  return text;
}

function tokenIds(prompt: readonly number[]): Int32Array {
  if (!Array.isArray(prompt) && !ArrayBuffer.isView(prompt))
    throw new InferxError("IX_INVALID_ARGUMENT", "the prompt must be a string or an array of token ids", {
      option: "prompt",
    });
  for (const id of prompt) {
    if (!Number.isInteger(id) || id < 0 || id > 0x7fffffff)
      throw new InferxError("IX_INVALID_ARGUMENT", `token id ${String(id)} is not a whole number of at least 0`, {
        option: "prompt",
      });
  }
  return Int32Array.from(prompt);
}

function messageList(messages: string | readonly ChatMessage[]): ChatMessage[] {
  if (typeof messages === "string") return [{ role: "user", content: messages }];
  if (
    !Array.isArray(messages) ||
    messages.length === 0 ||
    messages.some((m) => typeof m !== "object" || m === null || typeof m.role !== "string")
  ) {
    throw new InferxError("IX_INVALID_ARGUMENT", "messages must be a string or a non-empty array of {role, content}", {
      option: "messages",
    });
  }
  return [...messages];
}

function renderOptions(options: ChatEncodeOptions): RenderOptions {
  return {
    tools: options.tools,
    addGenerationPrompt: options.addGenerationPrompt,
    continueFinalMessage: options.continueFinalMessage,
    kwargs: options.templateVariables ? { ...options.templateVariables } : undefined,
  };
}
