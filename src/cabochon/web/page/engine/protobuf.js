/**
 * The little of protobuf that is needed to make an optional input of a graph a required one. onnxruntime-web feeds
 * required inputs only, and an input is optional where an initializer has its name.
 */

const GRAPH = 7; // of ModelProto
const INITIALIZER = 5; // of GraphProto
const NAME = 8; // of TensorProto

/** The model without the initializer of this name. */
export function withoutInitializer(/** @type {Uint8Array} */ model, /** @type {string} */ name) {
  return rewritten(model, GRAPH, (graph) => rewritten(graph, INITIALIZER, (tensor) => (nameOf(tensor) === name ? null : tensor)));
}

/**
 * A message whose fields of one number are what `change` makes of them; null takes one out.
 *
 * @param {Uint8Array} message
 * @param {number} number
 * @param {(value: Uint8Array) => Uint8Array | null} change
 */
function rewritten(message, number, change) {
  const parts = [];
  for (const field of fields(message)) {
    const value = field.number === number ? change(field.value) : field.value;
    if (value === field.value) parts.push(field.whole);
    else if (value) parts.push(varint((number << 3) | 2), varint(value.length), value);
  }
  return joined(parts);
}

function nameOf(/** @type {Uint8Array} */ tensor) {
  for (const { number, value } of fields(tensor)) if (number === NAME) return new TextDecoder().decode(value);
  return "";
}

/** Every field of a message: its number, its bytes with the tag, and its value where it has a length. */
function* fields(/** @type {Uint8Array} */ message) {
  let at = 0;
  const read = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = message[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const start = at;
    const tag = read();
    const wire = tag % 8;
    let begin = at;
    if (wire === 0) read();
    else if (wire === 1 || wire === 5) at += wire === 1 ? 8 : 4;
    else {
      const length = read();
      begin = at;
      at += length;
    }
    yield { number: Math.floor(tag / 8), whole: message.subarray(start, at), value: message.subarray(begin, at) };
  }
}

function varint(/** @type {number} */ value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Uint8Array.from([...bytes, value]);
}

function joined(/** @type {Uint8Array[]} */ parts) {
  const made = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    made.set(part, at);
    at += part.length;
  }
  return made;
}
