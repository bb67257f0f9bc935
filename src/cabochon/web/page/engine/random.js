/**
 * Random numbers as the Python runtime draws them, so that a seed means the same answer in both: the keys of the draws
 * are numpy's `default_rng(seed).integers(2**64, dtype=uint64)`: PCG64 (O'Neill 2014) seeded through SeedSequence.
 */

const MASK64 = (1n << 64n) - 1n;
const MASK128 = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n; // of PCG64

/** Draws whole numbers of 64 bits. */
export class Pcg64 {
  constructor(/** @type {bigint} */ seed) {
    const [a, b, c, d] = seedWords(seed);
    this.increment = ((((c << 64n) | d) << 1n) | 1n) & MASK128;
    this.state = 0n;
    this.#advance();
    this.state = (this.state + ((a << 64n) | b)) & MASK128;
    this.#advance();
  }

  /** The next number. @returns {bigint} */
  next() {
    this.#advance();
    const mixed = (this.state >> 64n) ^ (this.state & MASK64);
    const turn = this.state >> 122n;
    return ((mixed >> turn) | (mixed << ((64n - turn) & 63n))) & MASK64;
  }

  #advance() {
    this.state = (this.state * MULTIPLIER + this.increment) & MASK128;
  }
}

/** A seed that nobody chose. */
export function anySeed() {
  const words = crypto.getRandomValues(new BigUint64Array(2));
  return (words[0] << 64n) | words[1];
}

const POOL = 4;
const MULTIPLY = { first: 0x43b0d7e5, step: 0x931e8875 };
const GENERATE = { first: 0x8b51f9dd, step: 0x58f38ded };

/** SeedSequence(seed).generate_state(4, uint64). */
function seedWords(/** @type {bigint} */ seed) {
  const entropy = [];
  for (let left = seed; left || !entropy.length; left >>= 32n) entropy.push(Number(left & 0xffffffffn));
  const hash = hasher(MULTIPLY);
  const pool = Array.from({ length: POOL }, (_, n) => hash(entropy[n] ?? 0));
  for (let from = 0; from < POOL; from++) {
    for (let to = 0; to < POOL; to++) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
  }
  for (const word of entropy.slice(POOL)) for (let to = 0; to < POOL; to++) pool[to] = mix(pool[to], hash(word));
  const generate = hasher(GENERATE);
  const words = Array.from({ length: 8 }, (_, n) => BigInt(generate(pool[n % POOL])));
  return [0, 2, 4, 6].map((n) => words[n] | (words[n + 1] << 32n));
}

/** A hash of 32 bits whose constant moves on with every word. */
function hasher({ first, step }) {
  let constant = first;
  return (/** @type {number} */ value) => {
    let hashed = value ^ constant;
    constant = Math.imul(constant, step);
    hashed = Math.imul(hashed, constant);
    return (hashed ^ (hashed >>> 16)) >>> 0;
  };
}

function mix(/** @type {number} */ x, /** @type {number} */ y) {
  const mixed = Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/**
 * Standard Gumbel noise for each id; the same whenever `key` and id are the same. The uniform numbers are those of
 * SplitMix64 (Steele et al. 2014) seeded with `key`, the id being the place in its sequence. Numbers of 64 bits are
 * pairs of 32 here, as a vocabulary of BigInts would take longer than a step of the model.
 */
export function gumbel(/** @type {bigint} */ key, /** @type {number[]} */ ids) {
  const keyHigh = Number(key >> 32n);
  const keyLow = Number(key & 0xffffffffn);
  return Float64Array.from(ids, (id) => {
    multiply(0, id + 1, 0x9e3779b9, 0x7f4a7c15);
    const sum = low + keyLow;
    high = (high + keyHigh + (sum > 0xffffffff ? 1 : 0)) >>> 0;
    low = sum >>> 0;
    scramble(30);
    multiply(high, low, 0xbf58476d, 0x1ce4e5b9);
    scramble(27);
    multiply(high, low, 0x94d049bb, 0x133111eb);
    scramble(31);
    const upper = high * 2 ** 21 + (low >>> 11); // 53 bits
    return -Math.log(-Math.log((upper + 0.5) * 2 ** -53));
  });
}

let high = 0;
let low = 0;

/** `high` and `low` become those of z ^ (z >> shift), for a shift below 32. */
function scramble(/** @type {number} */ shift) {
  low = (low ^ ((low >>> shift) | (high << (32 - shift)))) >>> 0;
  high = (high ^ (high >>> shift)) >>> 0;
}

/** `high` and `low` become those of a product of two numbers of 64 bits. */
function multiply(/** @type {number} */ aHigh, /** @type {number} */ aLow, /** @type {number} */ bHigh, /** @type {number} */ bLow) {
  const a0 = aLow & 0xffff;
  const a1 = aLow >>> 16;
  const b0 = bLow & 0xffff;
  const b1 = bLow >>> 16;
  const middle = a1 * b0 + Math.floor((a0 * b0) / 65536);
  const other = a0 * b1 + (middle & 0xffff);
  const carried = a1 * b1 + Math.floor(middle / 65536) + Math.floor(other / 65536);
  low = Math.imul(aLow, bLow) >>> 0;
  high = (carried + Math.imul(aHigh, bLow) + Math.imul(aLow, bHigh)) >>> 0;
}
