// The official client for Node: chat, streams, tools and responses.
import OpenAI from "openai";

const { base, key, what, lines, said } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const parameters = { type: "object", properties: { place: { type: "string" } } };
const weather = { name: "weather", description: "Tells the weather.", parameters };

const deeds = {
  async chat() {
    const messages = [];
    const replies = [];
    for (const line of lines) {
      messages.push({ role: "user", content: line });
      const done = await client.chat.completions.create({ model: "scripted:tools", messages });
      messages.push(done.choices[0].message);
      replies.push(done.choices[0].message.content);
    }
    return replies;
  },

  async responses() {
    let previous_response_id;
    const replies = [];
    for (const input of lines) {
      const done = await client.responses.create({ model: "scripted:tools", input, previous_response_id });
      previous_response_id = done.id;
      replies.push(done.output_text);
    }
    return replies;
  },

  async chatStream() {
    const messages = [{ role: "user", content: said }];
    const stream = await client.chat.completions.create({ model: "holdfast", messages, stream: true });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    return text;
  },

  async responsesStream() {
    const stream = client.responses.stream({ model: "holdfast", input: said });
    let text = "";
    for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
    return { text, final: (await stream.finalResponse()).output_text };
  },

  async chatTools() {
    const tools = [{ type: "function", function: { ...weather, parse: JSON.parse, function: ({ place }) => `Rain in ${place}.` } }];
    const messages = [{ role: "user", content: said }];
    return await client.chat.completions.runTools({ model: "scripted:tools", messages, tools }).finalContent();
  },

  async responsesTools() {
    const tools = [{ type: "function", ...weather, strict: false }];
    const first = await client.responses.create({ model: "scripted:tools", input: said, tools });
    const call = first.output.find((item) => item.type === "function_call");
    const output = `Rain in ${JSON.parse(call.arguments).place}.`;
    const input = [{ type: "function_call_output", call_id: call.call_id, output }];
    const done = await client.responses.create({ model: "scripted:tools", input, tools, previous_response_id: first.id });
    return done.output_text;
  },

  async background() {
    let response = await client.responses.create({ model: "holdfast", input: said, background: true });
    while (["queued", "in_progress"].includes(response.status)) response = await client.responses.retrieve(response.id);
    const events = [];
    for await (const event of await client.responses.retrieve(response.id, { stream: true, starting_after: 1 })) events.push(event.type);
    await client.responses.delete(response.id);
    const gone = await client.responses.retrieve(response.id).catch((error) => error.status);
    return { text: response.output_text, events, gone };
  },
};

console.log(JSON.stringify(await deeds[what]()));
