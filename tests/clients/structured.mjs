// Structured output as JavaScript clients read it. Each line of input asks for one reading,
// {reader, baseURL}; the line of output says what came of it:
//   partials   every partial object that was shown, in order
//   value, finish   the parsed document and its finish reason, if it came to that
//   news   what was told about the router, with the finish reason of the chunk that told it
//   raised   the error that ended the reading; null if none did
//   errors   what the client reported on the way

import { createInterface } from 'node:readline';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Output, streamObject, streamText } from 'ai';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';

import { Tale } from './tale.mjs';

// Of streamObject the SDK says that it is deprecated. Many still call it.
globalThis.AI_SDK_LOG_WARNINGS = false;

const PROMPT = 'Tell me a tale.';

function openai(baseURL) {
  return new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 }).chat.completions;
}

const asked = {
  model: 'chat',
  messages: [{ role: 'user', content: PROMPT }],
  response_format: zodResponseFormat(Tale, 'tale'),
};

// What a chunk, or a blocking answer, tells about the router.
function told({ choices, router }) {
  return router ? [{ finish: choices?.[0]?.finish_reason ?? null, router }] : [];
}

// How the AI SDK hands on what it does not know itself.
const metadataExtractor = {
  extractMetadata: async ({ parsedBody }) => ({ seam: { news: told(parsedBody) } }),
  createStreamExtractor() {
    const news = [];
    return {
      processChunk: (chunk) => news.push(...told(chunk)),
      buildMetadata: () => ({ seam: { news } }),
    };
  },
};

// What both of the AI SDK's functions are called with.
function common(baseURL, errors) {
  const provider = createOpenAICompatible({
    name: 'router',
    baseURL,
    apiKey: 'none',
    supportsStructuredOutputs: true,
    metadataExtractor,
  });
  return {
    model: provider('chat'),
    prompt: PROMPT,
    maxRetries: 0,
    onError: ({ error }) => errors.push(error),
  };
}

async function collect(stream, partials) {
  for await (const partial of stream) partials.push(structuredClone(partial));
}

const readers = {
  async 'openai parse'({ baseURL }) {
    const answer = await openai(baseURL).parse(asked);
    const [choice] = answer.choices;
    return { value: choice.message.parsed, finish: choice.finish_reason, news: told(answer) };
  },

  async 'openai stream'({ baseURL, partials }) {
    const news = [];
    const stream = openai(baseURL).stream(asked);
    stream.on('chunk', (chunk) => news.push(...told(chunk)));
    stream.on('content.delta', ({ parsed }) => partials.push(structuredClone(parsed)));
    const [choice] = (await stream.finalChatCompletion()).choices;
    return { value: choice.message.parsed, finish: choice.finish_reason, news };
  },

  async 'ai streamObject'({ baseURL, partials, errors }) {
    const result = streamObject({ ...common(baseURL, errors), schema: Tale });
    await collect(result.partialObjectStream, partials);
    const value = await result.object;
    const { news } = (await result.providerMetadata).seam;
    return { value, finish: await result.finishReason, news };
  },

  async 'ai streamText'({ baseURL, partials, errors }) {
    const output = Output.object({ schema: Tale });
    const result = streamText({ ...common(baseURL, errors), output });
    await collect(result.partialOutputStream, partials);
    const value = await result.output;
    const { providerMetadata, finishReason } = await result.finalStep;
    return { value, finish: finishReason, news: providerMetadata.seam.news };
  },
};

// The AI SDK keeps the body of an error response in `data`.
function brief(error) {
  return { name: error.name ?? '', code: error.code ?? error.data?.error?.code ?? null };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { reader, baseURL } = JSON.parse(line);
  const seen = { partials: [], errors: [] };
  let raised = null;
  let read = {};
  try {
    read = await readers[reader]({ baseURL, ...seen });
  } catch (error) {
    raised = brief(error);
  }
  const { partials, errors } = seen;
  process.stdout.write(
    `${JSON.stringify({ ...read, partials, raised, errors: errors.map(brief) })}\n`,
  );
}
