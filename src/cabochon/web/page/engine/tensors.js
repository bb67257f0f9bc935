/** Between onnxruntime's tensors and plain numbers. */

/** Whole numbers as a tensor i64 of this shape. */
export function whole(ort, /** @type {ArrayLike<number>} */ values, /** @type {number[]} */ dims) {
  return new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);
}

/** Numbers as a tensor of a floating type: "float32" or "float16". */
export function floating(ort, /** @type {string} */ type, /** @type {Float32Array} */ values, /** @type {number[]} */ dims) {
  return new ort.Tensor(type, type === "float16" ? toHalf(values) : values, dims);
}

/** The values of a tensor in host memory as float32. */
export function numbers(tensor) {
  if (tensor.type !== "float16") return tensor.data;
  return tensor.data instanceof Uint16Array ? fromHalf(tensor.data) : Float32Array.from(tensor.data);
}

/** The rows of a tensor [1, rows, width], float32. @returns {Float32Array[]} */
export function rowsOf(tensor) {
  const [, rows, width] = tensor.dims;
  const values = numbers(tensor);
  return Array.from({ length: rows }, (_, row) => values.subarray(row * width, (row + 1) * width));
}

/** @returns {Uint16Array | Float16Array} what onnxruntime takes for float16 in this browser */
function toHalf(/** @type {Float32Array} */ values) {
  return globalThis.Float16Array ? Float16Array.from(values) : Uint16Array.from(values, halfOf);
}

const word = new Uint32Array(1);
const number = new Float32Array(word.buffer);

/** The bits of the nearest float16, ties to even. */
function halfOf(/** @type {number} */ value) {
  number[0] = value;
  const sign = (word[0] >>> 16) & 0x8000;
  const size = Math.abs(value);
  if (!(size < 65520)) return sign | (Number.isNaN(value) ? 0x7e00 : 0x7c00);
  const exponent = Math.max(Math.floor(Math.log2(size || 1e-9)), -14);
  const steps = roundEven(size / 2 ** (exponent - 10));
  return sign | (steps < 1024 ? steps : (exponent + 14) * 1024 + steps); // a step too many carries into the exponent
}

function roundEven(/** @type {number} */ value) {
  const rounded = Math.round(value);
  return rounded - value === 0.5 && rounded % 2 ? rounded - 1 : rounded;
}

function fromHalf(/** @type {Uint16Array} */ bits) {
  return Float32Array.from(bits, (half) => {
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    const size = exponent === 31 ? (fraction ? NaN : Infinity) : (exponent ? 1024 + fraction : fraction) * 2 ** (Math.max(exponent, 1) - 25);
    return half & 0x8000 ? -size : size;
  });
}
