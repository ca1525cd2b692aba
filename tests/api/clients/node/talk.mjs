// A conversation with a client of OpenAI or Anthropic. Messages and replies are lines of JSON. If a message fails, the history stays as before.
import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { url, key, client, stream } = JSON.parse(process.argv[1]);
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, timeout: 60_000 });
const anthropic = new Anthropic({ baseURL: url, apiKey: key, timeout: 60_000 });
const weather = "Rain in Bonn.";
const parameters = { type: "object", properties: { place: { type: "string" } }, required: ["place"], additionalProperties: false };
const tool = { name: "weather", description: "Tells the weather.", strict: true };

const apis = {
  chat: {
    async ask(messages) {
      const asked = { model: "holdfast", messages, tools: [{ type: "function", function: { ...tool, parameters } }] };
      const done = stream
        ? await openai.chat.completions.stream(asked).finalChatCompletion()
        : await openai.chat.completions.create(asked);
      const message = done.choices[0].message;
      const results = (message.tool_calls ?? []).map((call) => ({ role: "tool", tool_call_id: call.id, content: weather }));
      return { said: [message], results, text: message.content };
    },
  },

  responses: {
    async ask(input) {
      const asked = { model: "holdfast", input, tools: [{ type: "function", ...tool, parameters }], store: false };
      const done = stream ? await openai.responses.stream(asked).finalResponse() : await openai.responses.create(asked);
      const calls = done.output.filter((item) => item.type === "function_call");
      const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: weather }));
      return { said: done.output, results, text: done.output_text };
    },
  },

  anthropic: {
    async ask(messages) {
      const tools = [{ name: tool.name, description: tool.description, input_schema: parameters }];
      const asked = { model: "holdfast", max_tokens: 1024, messages, tools };
      const done = stream ? await anthropic.messages.stream(asked).finalMessage() : await anthropic.messages.create(asked);
      const calls = done.content.filter((block) => block.type === "tool_use");
      const content = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: weather }));
      const text = done.content.map((block) => block.text ?? "").join("");
      return { said: [{ role: "assistant", content: done.content }], results: content.length ? [{ role: "user", content }] : [], text };
    },
  },
};

let history = [];
for await (const line of createInterface({ input: process.stdin })) {
  const messages = [...history, { role: "user", content: JSON.parse(line) }];
  try {
    for (;;) {
      const { said, results, text } = await apis[client].ask(messages);
      messages.push(...said, ...results);
      if (results.length) continue;
      history = messages;
      console.log(JSON.stringify({ text }));
      break;
    }
  } catch (error) {
    console.log(JSON.stringify({ error: `${error.constructor.name}: ${error.message}` }));
  }
}
