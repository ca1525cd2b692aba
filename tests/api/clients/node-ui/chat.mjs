// A chat of the Vercel AI SDK without a page. Each line of its input is a command, and each line of its output the state after it.
import { createInterface } from "node:readline";

const { url, key, id, sdk = "ai", messages = [], tools, replay } = JSON.parse(process.argv[2]);
const ai = await import(sdk);

class PlainState {
  status = "ready";
  error = undefined;
  messages = messages;
  pushMessage = (message) => { this.messages = [...this.messages, message]; };
  popMessage = () => { this.messages = this.messages.slice(0, -1); };
  replaceMessage = (index, message) => { this.messages = this.messages.with(index, this.snapshot(message)); };
  snapshot = (value) => structuredClone(value);
}

class PlainChat extends ai.AbstractChat {
  constructor(options) {
    super({ ...options, state: new PlainState() });
  }
}

const transport = new ai.DefaultChatTransport({
  api: `${url}/v1/ai-sdk/chat`,
  headers: { authorization: `Bearer ${key}` },
  body: tools ? { tools } : {},
  prepareReconnectToStreamRequest: replay
    ? ({ id, api }) => ({ api: `${api}/${encodeURIComponent(id)}/stream?message=${encodeURIComponent(chat.lastMessage.id)}` })
    : undefined,
});
const calls = [];
const errors = [];
const chat = new PlainChat({
  id,
  transport,
  onError: (error) => errors.push(error.message),
  onToolCall: async ({ toolCall }) => {
    if (toolCall.dynamic) return;
    calls.push(toolCall.toolName);
    chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: { weather: "Rain in Bonn." } });
  },
  sendAutomaticallyWhen: (given) =>
    ai.lastAssistantMessageIsCompleteWithToolCalls(given) || ai.lastAssistantMessageIsCompleteWithApprovalResponses(given),
});
let work = Promise.resolve();

const shown = (message) =>
  (message?.parts ?? []).filter((part) => part.type === "text" && !part.providerMetadata?.holdfast?.discarded).map((part) => part.text).join("");
const last = () => (chat.lastMessage?.role === "assistant" ? shown(chat.lastMessage) : "");

const settled = async () => {
  await work;
  while (!["ready", "error"].includes(chat.status)) await new Promise((resolve) => setTimeout(resolve, 10));
};

const commands = {
  send: ({ text }) => { work = chat.sendMessage({ text }); },
  edit: ({ text, index }) => { work = chat.sendMessage({ text, messageId: chat.messages[index].id }); },
  regenerate: () => { work = chat.regenerate(); },
  resume: () => { work = chat.resumeStream(); },
  approve: ({ approved }) => {
    const asked = chat.lastMessage.parts.find((part) => part.state === "approval-requested");
    work = chat.addToolApprovalResponse({ id: asked.approval.id, approved });
  },
  leave: () => chat.stop(),
  settle: settled,
  read: async ({ length }) => {
    while (last().length < length && chat.status !== "error") await new Promise((resolve) => setTimeout(resolve, 5));
  },
  state: () => {},
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  await commands[command.do](command);
  console.log(JSON.stringify({ status: chat.status, text: last(), messages: chat.messages, calls, errors }));
}
process.exit(0);
