/** Columns of caches [1, heads, columns, size]: how many a sliding cache keeps, and how some are cut out. */

/** How many columns a sliding cache keeps (`keep`), and how many more it gathers before it is copied. */
export class Eviction {
  constructor(/** @type {number} */ window, /** @type {number} */ reserve, /** @type {number} */ slack) {
    this.window = window;
    this.reserve = reserve;
    this.slack = slack;
  }

  /**
   * Room to rewind 16 tokens; a copy after every quarter of a window, or every 16 tokens. Where a step may take back
   * `drafts` tokens, two more than these stay: a drafter sees window + 1 keys.
   */
  static usual(/** @type {number} */ window, drafts = 0) {
    return new Eviction(window, Math.max(16, drafts + 2), Math.max(16, Math.floor(window / 4)));
  }

  /** Columns that stay. */
  get keep() {
    return this.window - 1 + this.reserve;
  }

  /** The most columns a sliding cache holds between two steps. */
  get most() {
    return this.keep + this.slack;
  }
}

/** A cache without columns. */
export function empty(ort, /** @type {import("./manifest.js").Cache} */ cache, /** @type {string} */ type) {
  return new ort.Tensor(type, new (arrayOf(type))(0), [1, cache.heads, 0, cache.size]);
}

/**
 * The columns from `first` up to `end` of a cache, as a tensor of its own where it lies; the old one is let go.
 *
 * @param {any} ort
 * @param {any} tensor  on the GPU or in host memory
 * @param {number} first
 * @param {number} end
 */
export async function cut(ort, tensor, first, end) {
  const [, heads, columns, size] = tensor.dims;
  if (first === 0 && end === columns) return tensor;
  const dims = [1, heads, end - first, size];
  if (first === end) {
    tensor.dispose();
    return new ort.Tensor(tensor.type, new (arrayOf(tensor.type))(0), dims);
  }
  return tensor.location === "gpu-buffer" ? cutOnGpu(ort, tensor, first, end, dims) : cutInHost(ort, tensor, first, end, dims);
}

async function cutOnGpu(ort, tensor, /** @type {number} */ first, /** @type {number} */ end, /** @type {number[]} */ dims) {
  const [, heads, columns, size] = tensor.dims;
  const device = await ort.env.webgpu.device;
  const row = size * (tensor.type === "float16" ? 2 : 4); // bytes; head sizes are multiples of 8
  const length = (end - first) * row;
  const buffer = device.createBuffer({
    size: Math.ceil((heads * length) / 16) * 16,
    usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
  });
  const encoder = device.createCommandEncoder();
  for (let head = 0; head < heads; head++) {
    encoder.copyBufferToBuffer(tensor.gpuBuffer, (head * columns + first) * row, buffer, head * length, length);
  }
  device.queue.submit([encoder.finish()]);
  tensor.dispose();
  return ort.Tensor.fromGpuBuffer(buffer, { dataType: tensor.type, dims, dispose: () => buffer.destroy() });
}

function cutInHost(ort, tensor, /** @type {number} */ first, /** @type {number} */ end, /** @type {number[]} */ dims) {
  const [, heads, columns, size] = tensor.dims;
  const length = (end - first) * size;
  const made = new tensor.data.constructor(heads * length);
  for (let head = 0; head < heads; head++) {
    const start = (head * columns + first) * size;
    made.set(tensor.data.subarray(start, start + length), head * length);
  }
  return new ort.Tensor(tensor.type, made, dims);
}

function arrayOf(/** @type {string} */ type) {
  return type === "float16" ? (globalThis.Float16Array ?? Uint16Array) : Float32Array;
}
