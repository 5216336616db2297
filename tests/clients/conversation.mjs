// Conversations of the AI SDK, one per line of input: {client, baseURL, till, headers, maxRetries},
// where the client is `chat` or `messages`. For each, a line of output says whether it came to its
// end. The SDK runs the tool by itself, as soon as it holds a call to be complete.

import { createInterface } from 'node:readline';

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { isStepCount, jsonSchema, streamText, tool } from 'ai';

const parameters = {
  type: 'object',
  properties: {
    payment: { type: 'integer' },
    amount: { type: 'number' },
    to: { type: 'string' },
  },
  required: ['payment', 'amount', 'to'],
  additionalProperties: false,
};

const providers = {
  chat: (baseURL) => createOpenAICompatible({ name: 'router', baseURL, apiKey: 'none' }),
  messages: (baseURL) => createAnthropic({ baseURL, apiKey: 'none' }),
};

async function converse({ client, baseURL, till, headers, maxRetries }) {
  const provider = providers[client](baseURL);
  const pay = tool({
    description: 'Pay.',
    inputSchema: jsonSchema(parameters),
    execute: async (input) => {
      const response = await fetch(till, { method: 'POST', body: JSON.stringify(input) });
      return response.text();
    },
  });
  const result = streamText({
    model: provider('chat'),
    prompt: 'Pay.',
    tools: { pay },
    stopWhen: isStepCount(4),
    headers,
    maxRetries,
    onError: () => {},
  });
  let whole = true;
  let finish = '';
  for await (const part of result.fullStream) {
    if (part.type === 'error' || part.type === 'tool-error' || part.type === 'abort') whole = false;
    if (part.type === 'finish') finish = part.finishReason;
  }
  return whole && finish === 'stop';
}

for await (const line of createInterface({ input: process.stdin })) {
  let whole = false;
  try {
    whole = await converse(JSON.parse(line));
  } catch (error) {
    process.stderr.write(`${error}\n`);
  }
  process.stdout.write(`${JSON.stringify({ whole })}\n`);
}
