/** What can go wrong. Every error says where, what was found and expected, and what to do. */

/** Where it happened (`at`), what was found and expected (`message`), and what to do (`remedy`). */
export class CabochonError extends Error {
  /**
   * @param {string} message
   * @param {{at?: string, remedy?: string, cause?: unknown}} [said]
   */
  constructor(message, { at = "", remedy = "", cause } = {}) {
    super(message, { cause });
    this.name = new.target.name;
    this.at = at;
    this.remedy = remedy;
  }

  toString() {
    return `${this.at ? `${this.at}: ` : ""}${this.message}${this.remedy ? `\n  -> ${this.remedy}` : ""}`;
  }
}

/** A package that is not right, or cannot be read. */
export class PackageError extends CabochonError {}

/** A request that cannot be served as asked. */
export class RequestError extends CabochonError {}

/** A browser or a machine that cannot do what is needed. */
export class DeviceError extends CabochonError {}

const KINDS = { CabochonError, PackageError, RequestError, DeviceError };

/** What of an error goes from a worker to its page. */
export function packed(/** @type {unknown} */ error) {
  const { name = "Error", message = String(error), at = "", remedy = "" } = Object(error);
  return { name, message, at, remedy };
}

/** The error that `packed` was given, without its stack. */
export function unpacked(/** @type {ReturnType<typeof packed>} */ { name, message, at, remedy }) {
  if (name === "AbortError") return new DOMException(message, name);
  const Kind = KINDS[name] ?? CabochonError;
  return new Kind(Kind === CabochonError && name !== "CabochonError" ? `${name}: ${message}` : message, { at, remedy });
}
