// Clients of chat completions and of Messages. Each line of input asks for one reading:
//   client    one of `clients` below
//   origin    of the router, without `/v1`
//   stream    as a stream, or whole
//   image     base64 of a PNG to be looked at, if any
//   till      where a tool call is paid, if there is to be one: its arguments are posted there
//   document  whether structured output is asked for
// The line of output says what came of it:
//   text, value, finish   the last answer, if it came to that; `value` is the parsed document
//   routers   what was told about the router
//   raised    the error that ended the reading; null if none did
//   errors    what the client reported on the way

import { createInterface } from 'node:readline';

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';

import { Tale } from './tale.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const PROMPT = 'Tell me a tale, or pay.';
const MAX_TURNS = 4;
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

async function pay(till, input) {
  const response = await fetch(till, { method: 'POST', body: JSON.stringify(input) });
  return response.text();
}

// openai

async function openai({ origin, stream, image, till, document, routers }) {
  const client = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'none', maxRetries: 0 });
  const picture = { type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } };
  const content = image ? [{ type: 'text', text: PROMPT }, picture] : PROMPT;
  const asked = {
    model: 'chat',
    messages: [{ role: 'user', content }],
    ...(till && { tools: [{ type: 'function', function: { name: 'pay', parameters } }] }),
    ...(document && { response_format: zodResponseFormat(Tale, 'tale') }),
  };
  for (let turn = 0; turn < MAX_TURNS; turn++) {
    const answer = await openaiAnswer(client.chat.completions, asked, { stream, document, routers });
    const [{ message, finish_reason: finish }] = answer.choices;
    if (finish !== 'tool_calls') return { text: message.content, value: message.parsed, finish };
    asked.messages.push(message);
    for (const call of message.tool_calls) {
      const result = await pay(till, JSON.parse(call.function.arguments));
      asked.messages.push({ role: 'tool', tool_call_id: call.id, content: result });
    }
  }
}

async function openaiAnswer(completions, asked, { stream, document, routers }) {
  if (stream) {
    const streaming = completions.stream(asked);
    streaming.on('chunk', ({ router }) => router && routers.push(router));
    return streaming.finalChatCompletion();
  }
  const answer = await (document ? completions.parse(asked) : completions.create(asked));
  if (answer.router) routers.push(answer.router);
  return answer;
}

// @anthropic-ai/sdk

async function anthropic({ origin, stream, image, till, document, routers }) {
  const client = new Anthropic({ baseURL: origin, apiKey: 'none', maxRetries: 0 });
  const source = { type: 'base64', media_type: 'image/png', data: image };
  const content = image ? [{ type: 'image', source }, { type: 'text', text: PROMPT }] : PROMPT;
  const asked = {
    model: 'chat',
    max_tokens: 2000,
    messages: [{ role: 'user', content }],
    ...(till && { tools: [{ name: 'pay', input_schema: parameters }] }),
    ...(document && { output_config: { format: zodOutputFormat(Tale) } }),
  };
  for (let turn = 0; turn < MAX_TURNS; turn++) {
    const answer = await anthropicAnswer(client.messages, asked, { stream, document, routers });
    const text = answer.content.map((block) => block.text ?? '').join('');
    const finish = answer.stop_reason;
    if (finish !== 'tool_use') return { text, value: answer.parsed_output, finish };
    const results = [];
    for (const { type, id, input } of answer.content) {
      if (type !== 'tool_use') continue;
      results.push({ type: 'tool_result', tool_use_id: id, content: await pay(till, input) });
    }
    asked.messages.push({ role: 'assistant', content: answer.content });
    asked.messages.push({ role: 'user', content: results });
  }
}

async function anthropicAnswer(messages, asked, { stream, document, routers }) {
  if (stream) {
    const streaming = messages.stream(asked);
    streaming.on('streamEvent', ({ router }) => router && routers.push(router));
    return streaming.finalMessage();
  }
  const answer = await (document ? messages.parse(asked) : messages.create(asked));
  if (answer.router) routers.push(answer.router);
  return answer;
}

// The AI SDK, over either of its providers

function overChat({ origin, routers }) {
  const told = (body) => body?.router && routers.push(body.router);
  const metadataExtractor = {
    extractMetadata: async ({ parsedBody }) => void told(parsedBody),
    createStreamExtractor: () => ({ processChunk: told, buildMetadata: () => undefined }),
  };
  return createOpenAICompatible({
    name: 'router',
    baseURL: `${origin}/v1`,
    apiKey: 'none',
    supportsStructuredOutputs: true,
    metadataExtractor,
  });
}

function overMessages({ origin }) {
  return createAnthropic({ baseURL: `${origin}/v1`, apiKey: 'none' });
}

async function ai(provider, { stream, image, till, document, routers, errors }) {
  const picture = { type: 'file', mediaType: 'image/png', data: image };
  const content = [{ type: 'text', text: PROMPT }, ...(image ? [picture] : [])];
  const asked = {
    model: provider('chat'),
    messages: [{ role: 'user', content }],
    maxRetries: 0,
    stopWhen: isStepCount(MAX_TURNS),
    providerOptions: { anthropic: { structuredOutputMode: 'outputFormat' } },
    ...(till && {
      tools: {
        pay: tool({ inputSchema: jsonSchema(parameters), execute: (input) => pay(till, input) }),
      },
    }),
    ...(document && { output: Output.object({ schema: Tale }) }),
  };
  if (!stream) {
    const result = await generateText({ ...asked, include: { responseBody: true } });
    const { router } = result.finalStep.response.body;
    if (router && routers.length === 0) routers.push(router);
    const value = document ? result.output : undefined;
    return { text: result.text, value, finish: result.finishReason };
  }
  const result = streamText({
    ...asked,
    includeRawChunks: true,
    onError: ({ error }) => errors.push(error),
  });
  for await (const part of result.fullStream) {
    if (part.type === 'raw' && part.rawValue?.type === 'message_delta' && part.rawValue.router) {
      routers.push(part.rawValue.router);
    }
  }
  const value = document ? await result.output : undefined;
  return { text: await result.text, value, finish: await result.finishReason };
}

const clients = {
  openai,
  anthropic,
  'ai chat': (asked) => ai(overChat(asked), asked),
  'ai messages': (asked) => ai(overMessages(asked), asked),
};

// Each client keeps the body of an error in a place of its own.
function brief(error) {
  const text = error.responseBody && JSON.parse(error.responseBody).error;
  const body = text ?? error.data?.error ?? error.error?.error ?? error.error ?? error;
  return { name: error.name ?? '', code: body.code ?? null };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  const seen = { routers: [], errors: [] };
  let read = {};
  let raised = null;
  try {
    read = await clients[asked.client]({ ...asked, ...seen });
  } catch (error) {
    raised = brief(error);
  }
  const { routers, errors } = seen;
  process.stdout.write(
    `${JSON.stringify({ ...read, routers, raised, errors: errors.map(brief) })}\n`,
  );
}
