// Drives one browser for tests in another language: a JSON object a line in, {"value"} or {"error"} a line out.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

// The last two change no result. SwiftShader takes minutes over zeros that the extension asks for, and seconds over
// loops that write them; without its second compiler, onnxruntime's WebAssembly is ready in half the time.
const FLAGS = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension",
  "--js-flags=--liftoff-only",
];
const pages = new Map();
let browser;

const commands = {
  async start({ executable }) {
    browser = await chromium.launch({ executablePath: executable, args: FLAGS });
    return browser.version();
  },

  // `script` runs in the page before its own do; a page of the same `context` shares storage with those before it.
  async open({ page, url, script, context, viewport }) {
    const shared = context === undefined ? undefined : pages.get(context);
    const owner = shared?.context ?? (await browser.newContext({ viewport: viewport ?? { width: 1100, height: 800 } }));
    const tab = await owner.newPage();
    const held = { tab, context: owner, requests: [], said: [] };
    pages.set(page, held);
    if (script !== undefined) await tab.addInitScript(script);
    tab.on("requestfinished", (request) => held.requests.push(new URL(request.url()).pathname));
    tab.on("console", (message) => held.said.push(`${message.type()}: ${message.text()}`));
    tab.on("pageerror", (error) => held.said.push(`uncaught: ${error.stack ?? error}`));
    await tab.goto(url);
  },

  // `code` is the body of an async function of `argument`.
  async evaluate({ page, code, argument }) {
    return pages.get(page).tab.evaluate(
      ([body, given]) => new (async () => {}).constructor("argument", body)(given), [code, argument ?? null]);
  },

  // Until an expression holds; its value.
  async wait({ page, expression, seconds }) {
    const handle = await pages.get(page).tab.waitForFunction(expression, undefined, { timeout: 1000 * seconds });
    return handle.jsonValue();
  },

  async click({ page, selector }) {
    await pages.get(page).tab.click(selector, { timeout: 5000 });
  },

  async fill({ page, selector, text }) {
    await pages.get(page).tab.fill(selector, text, { timeout: 5000 });
  },

  async press({ page, selector, key }) {
    await pages.get(page).tab.press(selector, key, { timeout: 5000 });
  },

  async screenshot({ page, path }) {
    await pages.get(page).tab.screenshot({ path });
  },

  // Paths of the requests that were answered, and what the console said.
  async heard({ page }) {
    const { requests, said } = pages.get(page);
    return { requests, said };
  },

  async close({ page }) {
    const { tab, context } = pages.get(page);
    pages.delete(page);
    await tab.close();
    if (![...pages.values()].some((other) => other.context === context)) await context.close();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await commands[command](given)) ?? null };
  } catch (error) {
    answer = { error: String(error.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser?.close();
