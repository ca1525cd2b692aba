// Anthropic's client: a conversation that sends its whole history, streams, tools, errors.
import Anthropic from "@anthropic-ai/sdk";

const given = JSON.parse(process.argv[2]);
const client = new Anthropic({ baseURL: given.base.replace(/\/v1$/, ""), apiKey: given.key, maxRetries: 0 });
const plain = { model: given.model ?? "holdfast", max_tokens: 1024 };
const weather = {
  name: "weather",
  description: "Tells the weather.",
  input_schema: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
};

const textOf = (message) => message.content.map((block) => (block.type === "text" ? block.text : "")).join("");

async function ask(messages, stream, more = {}) {
  const asked = { ...plain, messages, ...more };
  const reply = stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
  messages.push({ role: "assistant", content: reply.content });
  return reply;
}

const programs = {
  async talk() {
    const messages = [];
    const replies = [];
    for (const [n, line] of given.lines.entries()) {
      messages.push({ role: "user", content: line });
      replies.push(textOf(await ask(messages, n % 2 === 1)));
    }
    return replies;
  },

  async stream() {
    const events = [];
    let text = "";
    for await (const event of await client.messages.create({
      ...plain,
      messages: [{ role: "user", content: given.said }],
      thinking: { type: "adaptive" },
      stream: true,
    })) {
      events.push(event.type);
      if (event.type === "content_block_delta" && event.delta.type === "text_delta") text += event.delta.text;
    }
    return { events, text };
  },

  async tools() {
    const messages = [{ role: "user", content: given.said }];
    const reply = await ask(messages, true, { tools: [weather] });
    const results = reply.content
      .filter((block) => block.type === "tool_use")
      .map((block) => ({ type: "tool_result", tool_use_id: block.id, content: `Rain in ${block.input.place}.` }));
    messages.push({ role: "user", content: results });
    return { stop: reply.stop_reason, text: textOf(await ask(messages, false, { tools: [weather] })) };
  },

  async errors() {
    const found = [];
    for (const wrong of [{ max_tokens: 0 }, { model: "nobody:none" }, { top_k: 3 }]) {
      try {
        await client.messages.create({ ...plain, messages: [{ role: "user", content: "x" }], ...wrong });
      } catch (error) {
        found.push([error.constructor.name, error.status, error.error.error.type, Boolean(error.requestID)]);
      }
    }
    const counted = await client.messages.countTokens({ model: "holdfast", messages: [{ role: "user", content: "x" }] });
    return { found, counted: counted.input_tokens > 0 };
  },
};

console.log(JSON.stringify(await programs[given.what]()));
