/** From what a caller gives to token ids: raw text, messages, or ids. */
import { Chat } from "./chat.js";
import { PackageError, RequestError } from "./errors.js";
import { JINJA, library, TOKENIZERS } from "./libraries.js";
import { Tokens } from "./tokens.js";

/** @typedef {string | number[] | import("./chat.js").Message[]} Prompt  raw text, token ids, or messages */

/** What a package can read: `tokens` is null without tokenizer.json, `chat` without a template besides. */
export class Prompts {
  constructor(/** @type {Tokens | null} */ tokens, /** @type {Chat | null} */ chat, /** @type {number} */ vocabulary) {
    this.tokens = tokens;
    this.chat = chat;
    this.vocabulary = vocabulary;
  }

  /**
   * @param {import("./manifest.js").Manifest} manifest
   * @param {import("./files.js").Files} files
   * @param {import("./libraries.js").Libraries} libraries
   */
  static async open(manifest, files, libraries) {
    const { tokenizer, decoder, generation, embedding } = manifest;
    if (!tokenizer) return new Prompts(null, null, decoder.vocabulary);
    const [json, config, own] = await Promise.all([
      files.text(tokenizer.file).then((text) => parsed(text, "tokenizer.json")),
      files.text(tokenizer.config).then((text) => (text ? parsed(text, "tokenizer_config.json") : {})),
      files.text(manifest.chat_template),
    ]);
    const placeholders = Object.values(embedding?.placeholders ?? {});
    const tokens = new Tokens(await library(libraries, TOKENIZERS), json, config, { bos: generation.bos, placeholders });
    const template = own ?? named(config.chat_template);
    const chat = template ? new Chat(await library(libraries, JINJA), template, tokens) : null;
    return new Prompts(tokens, chat, decoder.vocabulary);
  }

  /** The ids to feed. Raises RequestError for a prompt that is none or that the package cannot read. */
  ids(/** @type {Prompt} */ prompt, template = {}) {
    if (typeof prompt === "string") return this.#needed(this.tokens, "tokenizer.json").withOneBos(this.tokens?.text(prompt) ?? []);
    if (!Array.isArray(prompt)) throw new RequestError("expected text, messages or token ids", { at: "prompt" });
    if (prompt.length && prompt.every((item) => item !== null && typeof item === "object")) {
      return this.#needed(this.chat, "chat_template.jinja").ids(prompt, template);
    }
    prompt.forEach((token, n) => {
      if (Number.isInteger(token) && token >= 0 && token < this.vocabulary) return;
      throw new RequestError(`${JSON.stringify(token)}; expected a token id from 0 to ${this.vocabulary - 1}`, { at: `prompt[${n}]` });
    });
    return /** @type {number[]} */ ([...prompt]);
  }

  /** @template T @param {T | null} part @param {string} file @returns {T} */
  #needed(part, file) {
    if (part) return part;
    throw new RequestError(`the package has no ${file}`, { at: "prompt", remedy: "build it from a source that has it" });
  }
}

function parsed(/** @type {string | null} */ text, /** @type {string} */ at) {
  try {
    return JSON.parse(text ?? "");
  } catch (error) {
    throw new PackageError(`not JSON: ${Object(error).message}`, { at, remedy: "build the package again", cause: error });
  }
}

/** tokenizer_config.json holds one template or a list of named ones, of which "default" is taken. */
function named(/** @type {any} */ template) {
  return Array.isArray(template) ? template.find((one) => one?.name === "default")?.template : template;
}
