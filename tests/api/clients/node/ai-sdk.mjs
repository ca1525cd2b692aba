// The Vercel AI SDK with each of its two OpenAI providers.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { base, key, provider, what, lines, said } = JSON.parse(process.argv[2]);
const official = createOpenAI({ baseURL: base, apiKey: key });
const compatible = createOpenAICompatible({ name: "holdfast", baseURL: base, apiKey: key });
const model = { responses: official, chat: official.chat, compatible }[provider];
const system = "You are kind.";

const deeds = {
  async talk() {
    const messages = [];
    const replies = [];
    for (const content of lines) {
      messages.push({ role: "user", content });
      const done = await generateText({ model: model("scripted:tools"), system, messages, maxRetries: 0 });
      messages.push(...done.response.messages);
      replies.push(done.text);
    }
    return replies;
  },

  async stream() {
    const done = streamText({ model: model("holdfast"), system, prompt: said, maxRetries: 0 });
    let text = "";
    for await (const piece of done.textStream) text += piece;
    return { text, finish: await done.finishReason, tokens: (await done.usage).totalTokens };
  },

  async tools() {
    const weather = tool({
      description: "Tells the weather.",
      inputSchema: z.object({ place: z.string() }),
      execute: async ({ place }) => `Rain in ${place}.`,
    });
    const stopWhen = stepCountIs(3);
    const done = await generateText({ model: model("scripted:tools"), prompt: said, tools: { weather }, stopWhen, maxRetries: 0 });
    return { text: done.text, sessions: done.steps.map((step) => step.response.headers["x-session-id"]) };
  },
};

console.log(JSON.stringify(await deeds[what]()));
