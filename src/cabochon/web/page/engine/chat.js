/** The chat template: messages to marked-up text, as transformers renders it. */
import { textAlone } from "./embedder.js";
import { PackageError, RequestError } from "./errors.js";
import { unusedCharacter } from "./tokens.js";

/** @typedef {{role: string, content: string | {type: string, text?: string}[]}} Message */

const AT = "chat_template.jinja";

/** A parsed chat template. */
export class Chat {
  /** Raise PackageError for a template that does not parse. */
  constructor({ Template }, /** @type {string} */ source, /** @type {import("./tokens.js").Tokens} */ tokens) {
    this.tokens = tokens;
    try {
      this.template = new Template(source);
    } catch (error) {
      const said = { at: AT, remedy: "take the source's own template", cause: error };
      throw new PackageError(`not a template: ${Object(error).message}`, said);
    }
  }

  /** The template's text for these messages; `options` are the template's own (tools, enable_thinking ...). */
  render(/** @type {Message[]} */ messages, options = {}) {
    try {
      return this.template.render({ add_generation_prompt: true, tools: null, ...this.tokens.named, ...options, messages });
    } catch (error) {
      const said = { at: AT, remedy: "check the roles and contents of the messages", cause: error };
      throw new RequestError(`the template fails on these messages: ${Object(error).message}`, said);
    }
  }

  /** Token ids with exactly one BOS; control tokens are the template's own, never a message's. */
  ids(/** @type {Message[]} */ messages, options = {}) {
    messages.forEach((message, n) => check(message, `messages[${n}]`));
    const guard = unusedCharacter([messages, options]);
    const values = this.tokens.guarded({ messages, options }, guard);
    return this.tokens.withOneBos(this.tokens.markedUp(this.render(values.messages, values.options), guard));
  }
}

/** Raise RequestError for what is no message, or holds anything but text. */
function check(/** @type {any} */ message, /** @type {string} */ at) {
  const content = message?.content;
  if (typeof message?.role !== "string" || (typeof content !== "string" && !Array.isArray(content))) {
    throw new RequestError(`${JSON.stringify(message)}; expected an object with 'role' and 'content'`, { at });
  }
  for (const part of Array.isArray(content) ? content : []) {
    if (part?.type !== "text" || typeof part.text !== "string") throw textAlone(at);
  }
}
