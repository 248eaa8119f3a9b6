// A conversation of the Vercel AI SDK through the gateway: texts come as JSON on standard input, answers go out as JSON.
import { readFileSync } from "node:fs";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { api, url, stream, texts } = JSON.parse(readFileSync(0, "utf8"));
const provider = api === "anthropic" ? createAnthropic : createOpenAI;
const made = provider({ baseURL: `${url}/v1`, apiKey: "made-up" });
const model =
  api === "anthropic" ? made("claude-sonnet-4-6") : api === "responses" ? made.responses("gpt-4o") : made.chat("gpt-4o");

function page(number) {
  const rows = Array.from({ length: 40 }, (_, row) => `row ${row}: berth ${(row * 7) % 31}, ${row * number + 3} crates`);
  return `Ledger, page ${number}\n${rows.join("\n")}\ntotal: ${number * 1000 + 17}`;
}

const tools = {
  look_up: tool({
    description: "Read a page of the ledger.",
    inputSchema: z.object({ number: z.number().int() }),
    execute: async ({ number }) => page(number),
  }),
};
const providerOptions = api === "responses" ? { openai: { store: false } } : {};
const messages = [];
const answers = [];
for (const text of texts) {
  messages.push({ role: "user", content: text });
  const request = { model, system: "You are a clerk.", messages, tools, providerOptions, maxRetries: 0, maxOutputTokens: 500 };
  const asked = { ...request, stopWhen: stepCountIs(4) };
  const result = stream ? streamText(asked) : await generateText(asked);
  if (stream) await result.consumeStream({ onError: (error) => { throw error; } });
  answers.push(await result.text);
  messages.push(...(await result.response).messages);
}
process.stdout.write(JSON.stringify(answers));
