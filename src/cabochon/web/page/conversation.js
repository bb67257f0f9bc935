/** Messages on the page, and as the chat template takes them. */

const NAMES = { user: "You", assistant: "Model" };

/** A conversation in an element with role "log". */
export class Conversation {
  constructor(/** @type {HTMLElement} */ log) {
    this.log = log;
    /** @type {import("./engine/chat.js").Message[]} */
    this.messages = [];
  }

  /** A message that is whole. */
  say(/** @type {"user" | "assistant"} */ role, /** @type {string} */ content) {
    this.messages.push({ role, content });
    this.#show(role).append(content);
  }

  /**
   * An answer that comes in pieces; it is read out once it is whole.
   *
   * @returns {{add: (piece: string) => void, end: (content: string, remark: string) => void, drop: () => void}}
   */
  answer() {
    const text = document.createTextNode("");
    const article = this.#show("assistant");
    article.append(text);
    this.log.setAttribute("aria-busy", "true");
    const whole = () => this.log.setAttribute("aria-busy", "false");
    return {
      add: (piece) => {
        const follows = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
        text.data += piece;
        if (follows) this.#scroll();
      },
      end: (content, remark) => {
        this.messages.push({ role: "assistant", content });
        if (remark) article.append(made("footer", remark));
        whole();
        this.#scroll();
      },
      drop: () => {
        article.remove();
        whole();
      },
    };
  }

  /** Take the last message back; its text. */
  takeBack() {
    this.log.lastElementChild?.remove();
    return /** @type {string} */ (this.messages.pop()?.content ?? "");
  }

  /** Begin anew. */
  clear() {
    this.messages = [];
    this.log.replaceChildren();
  }

  #show(/** @type {"user" | "assistant"} */ role) {
    const article = document.createElement("article");
    article.className = role;
    article.append(made("h2", NAMES[role]));
    this.log.append(article);
    this.#scroll();
    return article;
  }

  #scroll() {
    this.log.scrollTop = this.log.scrollHeight;
  }
}

function made(/** @type {string} */ tag, /** @type {string} */ text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
