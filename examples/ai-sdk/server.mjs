// Serves the page, and passes /api/chat on to Holdfast with the key, which the browser never gets.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { build } from "esbuild";

const HOLDFAST = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8420";
const HOME = process.env.HOLDFAST_HOME ?? `${homedir()}/.holdfast`;
const KEY = process.env.HOLDFAST_API_KEY ?? (await readFile(`${HOME}/api-key`, "utf8")).trim();
const PORT = Number(process.env.PORT ?? 3000);

const page = await readFile(new URL("index.html", import.meta.url));
const { outputFiles } = await build({
  entryPoints: [new URL("chat.jsx", import.meta.url).pathname],
  absWorkingDir: process.cwd(),
  nodePaths: [`${process.cwd()}/node_modules`],
  bundle: true,
  minify: true,
  write: false,
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
});
const script = outputFiles[0].contents;

// Add your own check of the user here: whoever reaches this server can use every chat whose id they know.
async function pass(request, response) {
  const left = new AbortController();
  response.on("close", () => left.abort());
  try {
    const answer = await fetch(`${HOLDFAST}/v1/ai-sdk/chat${request.url.slice("/api/chat".length)}`, {
      method: request.method,
      headers: { authorization: `Bearer ${KEY}`, "content-type": "application/json" },
      body: request.method === "POST" ? Readable.toWeb(request) : undefined,
      duplex: "half",
      signal: left.signal,
    });
    const shown = ["content-type", "cache-control", "x-vercel-ai-ui-message-stream"];
    const headers = shown.flatMap((name) => (answer.headers.has(name) ? [[name, answer.headers.get(name)]] : []));
    response.writeHead(answer.status, Object.fromEntries(headers));
    if (answer.body) await pipeline(Readable.fromWeb(answer.body), response);
    else response.end();
  } catch (error) {
    if (left.signal.aborted) return;
    if (response.headersSent) response.destroy(); // the page sees a lost connection, and resumes
    else response.writeHead(502, { "content-type": "text/plain" }).end(`Holdfast at ${HOLDFAST} does not answer: ${error.cause?.message ?? error.message}`);
  }
}

const server = createServer((request, response) => {
  const origin = request.headers.origin;
  if (/^\/api\/chat(\/|\?|$)/.test(request.url)) {
    if (origin && new URL(origin).host !== request.headers.host) response.writeHead(403).end("another site may not use this server");
    else pass(request, response);
  } else if (request.url === "/chat.js") response.writeHead(200, { "content-type": "text/javascript" }).end(script);
  else if (request.url === "/" || request.url.startsWith("/?")) response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(page);
  else response.writeHead(404).end();
});
server.listen(PORT, "127.0.0.1", () => console.log(`Open http://127.0.0.1:${server.address().port}`));
