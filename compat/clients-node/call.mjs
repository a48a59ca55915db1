// The call that every client in this folder plays, and what it needs besides the client.
//
//   node CLIENT.mjs URL AGENT
//
// plays it with the agent of that ID on the server at URL, and writes what the client saw as one
// line of JSON.
const [url, agent] = process.argv.slice(2);

export const baseURL = `${url}/v1/agents/${agent}`;
export const unknownURL = `${url}/v1/agents/no-such-agent`;
export const model = 'fake-1';
export const system = 'Be brief.';
export const timetable = {
  name: 'timetable',
  description: 'When trains leave.',
  parameters: { type: 'object', properties: { to: { type: 'string' } }, required: ['to'], additionalProperties: false },
};

// script tells the fake LLM how to answer from now on.
async function script(fake) {
  const res = await fetch(`${baseURL}/update`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ properties: { llm: { params: { fake } } } }),
  });
  if (!res.ok) throw new Error(`update: ${res.status} ${await res.text()}`);
}

// lookUp is the tool. The LLM answers what it returns.
export async function lookUp({ to }) {
  await script({ answer: 'At nine.' });
  return JSON.stringify({ to, at: '9:00' });
}

// play plays the call. The client keeps the list of messages, as real ones do, and has
//
//   say(text)                   asks, reads the stream to its end, and returns the answer
//   interrupt(text, n, heard)   asks, goes away after n pieces of the answer, and keeps heard of it
//   call(text)                  asks with the tool, runs it, and returns the answer to its result
//   refused()                   asks an unknown agent, and returns {status, message} of the error
export async function play(client) {
  const seen = {};
  await script({});
  seen.first = await client.say('When is my train?');
  await script({ answer: 'one two three four five six', hang_after: 3 });
  seen.pieces = await client.interrupt('Count.', 3, 'one two');
  await script({ tool_name: timetable.name, tool_args: '{"to":"Bern"}' });
  seen.tool = await client.call('And to Bern?');
  await script({});
  seen.last = await client.say('Thanks.');
  seen.refused = await client.refused();
  console.log(JSON.stringify(seen));
  process.exit(0); // some clients keep connections or timers
}

// take returns the first n pieces of a stream, and leaves it as it is.
export async function take(stream, n) {
  const pieces = [];
  const it = stream[Symbol.asyncIterator]();
  while (pieces.length < n) {
    const { value, done } = await it.next();
    if (done) throw new Error(`the stream ended after ${JSON.stringify(pieces)}`);
    if (value) pieces.push(value);
  }
  return pieces;
}
