// A conversation with the Vercel AI SDK and one of its providers. Messages and replies are lines of JSON. If a message fails, the history stays as before.
import { createInterface } from "node:readline";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { url, key, client, stream } = JSON.parse(process.argv[1]);
const official = createOpenAI({ baseURL: `${url}/v1`, apiKey: key });
const compatible = createOpenAICompatible({ name: "holdfast", baseURL: `${url}/v1`, apiKey: key });
const model = { "ai-responses": official, "ai-chat": official.chat, "ai-compatible": compatible }[client]("holdfast");
const weather = tool({
  description: "Tells the weather.",
  inputSchema: z.object({ place: z.string() }),
  execute: async () => "Rain in Bonn.",
});

async function ask(messages) {
  const asked = { model, messages, tools: { weather }, stopWhen: stepCountIs(3) };
  if (!stream) {
    const done = await generateText(asked);
    return { text: done.text, said: done.response.messages };
  }
  let failure;
  const done = streamText({ ...asked, onError: ({ error }) => (failure = error) });
  await done.consumeStream();
  if (failure) throw failure;
  return { text: await done.text, said: (await done.response).messages };
}

let history = [];
for await (const line of createInterface({ input: process.stdin })) {
  const messages = [...history, { role: "user", content: JSON.parse(line) }];
  try {
    const { text, said } = await ask(messages);
    history = [...messages, ...said];
    console.log(JSON.stringify({ text }));
  } catch (error) {
    console.log(JSON.stringify({ error: `${error.constructor.name}: ${error.message}` }));
  }
}
