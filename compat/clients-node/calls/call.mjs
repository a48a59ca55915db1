// One call: a real AgentSession with a caller who speaks by a random script.
import { llm, stt, voice } from '@livekit/agents';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { Ears, Loudspeaker, Voice, outputs } from './room.mjs';
import { announcement, question, random } from './words.mjs';

const { START_OF_SPEECH, INTERIM_TRANSCRIPT, FINAL_TRANSCRIPT, PREFLIGHT_TRANSCRIPT, END_OF_SPEECH } = stt.SpeechEventType;

// Receptionist is the agent. It keeps which answer of the LLM each step of a speech got.
class Receptionist extends voice.Agent {
  constructor(call, name) {
    super({ instructions: `You are ${name}, who helps callers of a town.`, tools: tools(call) });
    this.call = call;
  }
  async llmNode(chatCtx, toolCtx, settings) {
    const step = { speech: undefined, number: 0, id: undefined, text: '' };
    const stream = await super.llmNode(chatCtx, toolCtx, settings);
    const { call } = this;
    step.speech = call.speechNow();
    step.number = step.speech?.numSteps;
    call.steps.push(step);
    return stream.pipeThrough(
      new TransformStream({
        transform(chunk, controller) {
          step.id ??= chunk.id;
          step.text += chunk.delta?.content ?? '';
          controller.enqueue(chunk);
        },
      }),
    );
  }
}

function tools(call) {
  const look = (name, low, high) =>
    llm.tool({
      name,
      description: 'Looks something up.',
      parameters: z.object({}),
      execute: async () => {
        await sleep(call.r.between(low, high));
        return 'found';
      },
    });
  return [
    look('look_up', 20, 200),
    look('search_archive', 1500, 3500),
    llm.tool({
      name: 'transfer',
      description: 'Transfers the caller to a colleague.',
      parameters: z.object({}),
      execute: async () => llm.handoff({ agent: new Receptionist(call, `colleague ${++call.colleagues}`), returns: 'transferred' }),
    }),
  ];
}

// play plays a call to its end and returns what is true of it. connect(session) attaches Heardlog
// and returns a function that waits until everything was reported.
export async function play({ name, seed, wordTimes, synchronized, model, connect, speechNow, turns = 6, r }) {
  const call = { name, r, steps: [], requests: [], plans: new Map(), colleagues: 0, speechNow, said: [], says: [], falseInterruptions: 0, kinds: [], notes: [] };
  call.plan = (text) => [...call.plans].find(([asked]) => text.endsWith(asked))?.[1];
  return { call, run: () => run(call, { seed, wordTimes, synchronized, model, connect, turns }) };
}

async function run(call, { seed, wordTimes, synchronized, model, connect, turns }) {
  const r = random(seed);
  const ears = new Ears();
  const mouth = new Voice(random(seed + 7919), wordTimes);
  const speaker = new Loudspeaker(mouth);
  const session = new voice.AgentSession({
    llm: model,
    stt: ears,
    tts: mouth,
    vad: null,
    aecWarmupDuration: null,
    userAwayTimeout: null,
    turnHandling: {
      turnDetection: 'stt',
      endpointing: { mode: 'fixed', minDelay: 150, maxDelay: 1000 },
      interruption: { mode: 'vad', minDuration: 0, minWords: 0, falseInterruptionTimeout: 600, resumeFalseInterruption: true },
      preemptiveGeneration: { enabled: true },
    },
  });
  call.items = [];
  session.on('conversation_item_added', ({ item }) => call.items.push({ item: structuredClone(item.toJSON()), at: Date.now() }));
  session.on('agent_false_interruption', (e) => e.resumed && call.falseInterruptions++);
  session.on('error', (e) => call.notes.push(`error: ${e.error?.error?.message ?? e.error?.message ?? e.error}`));
  let state = 'initializing';
  session.on('agent_state_changed', (e) => (state = e.newState));
  outputs(session, speaker, synchronized);
  const reported = connect(session, call);
  await session.start({ agent: new Receptionist(call, 'Robin') });

  const until = async (what, ms) => {
    for (const end = Date.now() + ms; Date.now() < end; await sleep(15)) if (what()) return true;
    return false;
  };
  const quiet = () => until(() => !speaker.playing && state === 'listening', 25000);
  // talk is the caller's speech. Sometimes recognition guesses, or hears one sentence as two.
  const talk = async (text) => {
    const words = text.split(' ');
    ears.hear(START_OF_SPEECH);
    for (let i = 1; i < words.length; i += r.whole(1, 3)) {
      ears.hear(INTERIM_TRANSCRIPT, words.slice(0, i).join(' '));
      await sleep(r.between(60, 160));
    }
    call.said.push(text);
    if (r.chance(0.4)) {
      ears.hear(PREFLIGHT_TRANSCRIPT, r.chance(0.5) ? text : words.slice(0, Math.max(1, words.length - 2)).join(' '));
      await sleep(r.between(50, 300));
    }
    if (words.length > 6 && r.chance(0.2)) {
      const half = words.length >> 1;
      ears.hear(FINAL_TRANSCRIPT, words.slice(0, half).join(' '));
      await sleep(r.between(50, 200));
      ears.hear(FINAL_TRANSCRIPT, words.slice(half).join(' '));
    } else {
      ears.hear(FINAL_TRANSCRIPT, text);
    }
    await sleep(r.between(10, 120));
    ears.hear(END_OF_SPEECH);
  };
  const speaking = () => until(() => speaker.playing, 6000);
  const say = (text) => {
    call.says.push(text);
    return session.say(text);
  };
  // act is what happens after the caller's words of a turn.
  const acts = {
    async listen() {
      await speaking();
      await quiet();
    },
    async bargeIn() {
      if (await speaking()) await sleep(r.between(100, 6000));
      // The next turn's words are the barge-in.
    },
    async interrupt() {
      if (await speaking()) await sleep(r.between(100, 5000));
      session.interrupt({ force: true });
      await sleep(r.between(50, 600));
    },
    async interruptEarly() {
      await sleep(r.between(50, 500));
      session.interrupt({ force: true });
      await sleep(r.between(50, 400));
    },
    async falseInterruption() {
      if (await speaking()) await sleep(r.between(300, 3000));
      ears.hear(START_OF_SPEECH);
      ears.hear(INTERIM_TRANSCRIPT, 'mhm');
      await sleep(r.between(100, 400));
      ears.hear(END_OF_SPEECH);
      await sleep(300);
      await until(() => speaker.playing, 1500);
      await quiet();
    },
    async say() {
      await speaking();
      await quiet();
      say(announcement(r));
      if (await speaking()) await (r.chance(0.4) ? sleep(r.between(200, 2500)) : quiet());
    },
  };
  try {
    const greeting = r.next();
    call.kinds.push(greeting < 0.4 ? 'greets by instructions' : greeting < 0.65 ? 'greets by say' : 'waits');
    if (greeting < 0.4) session.generateReply({ instructions: 'Greet the caller.' });
    else if (greeting < 0.65) say(`Hello and welcome, ${announcement(r)}`);
    if (greeting < 0.65) await (r.chance(0.3) ? sleep(r.between(100, 2500)) : acts.listen());
    for (let turn = 0; turn < turns; turn++) {
      const text = question(r);
      const tool = r.next();
      if (tool < 0.12) call.plans.set(text, { tool: 'look_up', words: r.chance(0.5) ? '' : `Let me check ${announcement(r)}` });
      else if (tool < 0.2) call.plans.set(text, { tool: 'search_archive', words: r.chance(0.3) ? '' : `I am searching the archive, ${announcement(r)}` });
      else if (tool < 0.24) call.plans.set(text, { tool: 'transfer', words: r.chance(0.5) ? '' : `I will transfer you, ${announcement(r)}` });
      await talk(text);
      const act = r.pick(['listen', 'listen', 'bargeIn', 'bargeIn', 'bargeIn', 'interrupt', 'interruptEarly', 'falseInterruption', 'say']);
      call.kinds.push(tool < 0.24 ? `${act}+tool` : act);
      await acts[act]();
    }
    const end = r.next();
    call.kinds.push(end < 0.3 ? 'hangs up' : end < 0.45 ? 'leaves at once' : end < 0.7 ? 'goodbye' : 'goodbye by instructions');
    if (end < 0.3) {
      await talk(question(r));
      if (await speaking()) await sleep(r.between(200, 3000));
    } else if (end < 0.45) {
      await quiet();
      await talk('No, that was all. Thank you, goodbye.');
      await sleep(r.between(0, 250));
    } else {
      await talk('Thank you, goodbye.');
      if (end >= 0.7) {
        await sleep(r.between(300, 900));
        session.generateReply({ instructions: 'Say goodbye.' });
      }
      if (r.chance(0.6)) await acts.listen();
      else if (await speaking()) await sleep(r.between(100, 2000));
    }
  } catch (err) {
    call.notes.push(`script: ${err.stack}`);
  }
  await session.close();
  call.closed = Date.now();
  await sleep(2200); // LiveKit may commit the last answer after close
  await reported();
  return { name: call.name, requests: call.requests, steps: call.steps, lines: mouth.lines, said: call.said, says: call.says, items: call.items, falseInterruptions: call.falseInterruptions, kinds: call.kinds, notes: call.notes };
}
