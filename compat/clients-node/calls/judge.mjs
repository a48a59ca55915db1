// Compares what Heardlog stored of a call with what the loudspeaker played.
import { heardOf } from './room.mjs';
import { distance, wordsOf } from './words.mjs';

// answersOf returns the answers of a call in order: those of the LLM, and say().
function answersOf(truth) {
  const answers = [];
  const taken = new Set();
  for (const step of truth.steps) {
    const request = truth.requests.find((q) => q.id === step.id);
    if (!request?.text.trim()) continue;
    const lines = truth.lines.filter((l) => l.speech === step.speech && l.step === step.number && step.speech);
    lines.forEach((l) => taken.add(l));
    answers.push(make('llm', request.text, lines, { at: request.at, id: step.id, scheduled: step.speech?.scheduled ?? false, tool: request.tool }));
  }
  for (const line of truth.lines) {
    if (!taken.has(line) && line.words.length > 0) answers.push(make('say', line.words.join(' '), [line], { at: line.started, scheduled: true }));
  }
  return answers.sort((a, b) => (a.started || a.at) - (b.started || b.at));
}

function make(kind, text, lines, more) {
  const words = wordsOf(text);
  const heard = lines.reduce((n, l) => n + heardOf(l), 0);
  const started = Math.min(...lines.map((l) => l.started).filter(Boolean), Infinity);
  const stopped = Math.max(...lines.map((l) => l.stopped), 0);
  const state = heard === 0 ? 'unplayed' : heard < words.length ? 'cut' : 'whole';
  return { kind, text, words, heard, state, started: started === Infinity ? 0 : started, stopped, ...more };
}

// begins reports how many words two texts share at their beginning.
function common(a, b) {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

// fits reports whether words are all of an answer or its beginning. The last word may be a part.
function fits(words, answer) {
  const n = common(words, answer.words);
  return n > 0 && (n === words.length || (n === words.length - 1 && (answer.words[n] ?? '').startsWith(words[n])));
}

// assign pairs texts with answers: equal ones first, then beginnings, each in order.
function assign(texts, answers) {
  const pairs = new Map();
  const free = new Set(answers);
  const take = (test) =>
    texts.forEach((t, i) => {
      if (pairs.has(i)) return;
      const found = [...free].filter((a) => test(t, a));
      if (found.length === 0) return;
      const best = found.find((a) => [...pairs].every(([j, b]) => j < i === answers.indexOf(b) < answers.indexOf(a))) ?? found[0];
      pairs.set(i, best);
      free.delete(best);
    });
  take((t, a) => t.length === a.words.length && common(t, a.words) === t.length);
  take((t, a) => t.length > 0 && fits(t, a));
  return pairs;
}

// judge returns what is right and wrong about one call's record.
export function judge(truth, record) {
  const answers = answersOf(truth);
  const spoken = record.messages.filter((m) => m.role === 'assistant' && (m.generated || m.content || '').trim());
  const pairs = assign(spoken.map((m) => wordsOf(m.generated || m.content)), answers);
  const of = new Map([...pairs].map(([i, a]) => [a, spoken[i]]));
  const items = truth.items.filter(({ item }) => item.type === 'message' && item.role === 'assistant');
  const own = assign(items.map(({ item }) => wordsOf(item.content.join(' '))), answers);
  const ownOf = new Map([...own].map(([i, a]) => [a, items[i]]));
  const rows = answers.map((a) => {
    const m = of.get(a);
    const final = m?.state === 'final';
    const heard = final ? wordsOf(m.heard || m.content) : [];
    const should = a.words.slice(0, a.heard);
    const ownWords = ownOf.has(a) ? wordsOf(ownOf.get(a).item.content.join(' ')) : undefined;
    return {
      kind: a.kind, id: a.id, state: a.state, tool: a.tool, scheduled: a.scheduled, said: a.words.length, heard: a.heard, text: a.text, started: a.started, stopped: a.stopped,
      record: m && { seq: m.seq, state: m.state, interrupted: !!m.metadata?.interrupted, method: m.evidence?.method, confidence: m.evidence?.confidence, heard: m.heard || m.content },
      off: distance(heard, should),
      livekit: ownWords && { interrupted: ownOf.get(a).item.interrupted, off: distance(ownWords, should), late: ownOf.get(a).at - a.stopped, text: ownWords.join(' ') },
      ...nextPrompt(a, answers, truth.requests),
    };
  });
  const spare = spoken.filter((m, i) => !pairs.has(i) && m.state === 'final').map((m) => ({ seq: m.seq, text: m.content, method: m.evidence?.method }));
  const callers = ` ${record.messages.filter((m) => m.role === 'user' && m.state === 'final').map((m) => wordsOf(m.content).join(' ')).join(' ')} `;
  const known = ` ${truth.items.filter(({ item }) => item.type === 'message' && item.role === 'user').map(({ item }) => wordsOf(item.content.join(' ')).join(' ')).join(' ')} `;
  const lostWords = truth.said.filter((t) => !callers.includes(` ${wordsOf(t).join(' ')} `));
  const lostByLiveKit = truth.said.filter((t) => !known.includes(` ${wordsOf(t).join(' ')} `));
  // Answers in the record that come before one that was spoken earlier.
  const order = answers.filter((a) => of.get(a)?.state === 'final' && a.started).map((a) => of.get(a).seq);
  const disordered = order.filter((seq, i) => order.slice(0, i).some((earlier) => earlier > seq)).length;
  return { rows, spare, disordered, said: truth.said.length, lostWords, lostByLiveKit, falseInterruptions: truth.falseInterruptions, notes: truth.notes };
}

// nextPrompt compares the first prompt after an answer has ended with what was heard of it.
function nextPrompt(a, answers, requests) {
  if (!a.stopped) return {};
  const next = requests.find((q) => q.at > a.stopped && q.id !== a.id);
  if (!next) return {};
  const texts = next.messages.filter((m) => m.role === 'assistant' && m.content).map((m) => wordsOf(String(m.content)));
  const pairs = assign(texts, answers.filter((b) => b.at <= next.at));
  const found = [...pairs].find(([, b]) => b === a);
  const words = found ? texts[found[0]].length : 0;
  return { prompt: next.id, unheard: Math.max(0, words - a.heard), missing: Math.max(0, a.heard - words) };
}

const percent = (n, of) => (of === 0 ? '–' : `${((100 * n) / of).toFixed(1)}`);

// summary adds up the verdicts of a series.
export function summary(verdicts) {
  const rows = verdicts.flatMap((v) => v.rows);
  const count = (list, test) => list.filter(test).length;
  const real = rows.filter((r) => r.scheduled);
  const played = real.filter((r) => r.state !== 'unplayed');
  const cut = real.filter((r) => r.state === 'cut');
  const final = (r) => r.record?.state === 'final';
  const flagged = (r) => final(r) && r.record.interrupted;
  const hit = count(cut, flagged);
  const false_ = count(played, (r) => r.state === 'whole' && flagged(r));
  const precision = hit / (hit + false_ || 1);
  const recall = hit / (cut.length || 1);
  const unplayed = real.filter((r) => r.state === 'unplayed');
  const says = played.filter((r) => r.kind === 'say');
  const sure = rows.filter((r) => final(r) && r.record.confidence >= 90);
  const prompts = played.filter((r) => r.prompt);
  const own = cut.filter((r) => r.livekit);
  const sum = (f) => verdicts.reduce((n, v) => n + f(v), 0);
  return {
    calls: verdicts.length,
    'answers (cut / never played)': `${real.length} (${cut.length} / ${unplayed.length})`,
    'interrupted: precision / recall': `${percent(hit, hit + false_)} / ${percent(hit, cut.length)}`,
    F1: percent((2 * precision * recall) / (precision + recall || 1), 1),
    'heard within one / three words, cut answers': `${percent(count(cut, (r) => final(r) && r.off <= 1), cut.length)} / ${percent(count(cut, (r) => final(r) && r.off <= 3), cut.length)}`,
    "LiveKit's own text of them, the same": `${percent(count(own, (r) => r.livekit.off <= 1), own.length)} / ${percent(count(own, (r) => r.livekit.off <= 3), own.length)}`,
    'LiveKit has no text of cut answers': cut.length - own.length,
    'heard in full, stored so': `${count(played, (r) => r.state === 'whole' && final(r) && r.off === 0)} of ${count(played, (r) => r.state === 'whole')}`,
    'false interruptions (resumed)': sum((v) => v.falseInterruptions),
    'unheard answers kept with words': `${count(unplayed, (r) => final(r) && r.off > 0)} of ${unplayed.length}`,
    'ghosts stored': `${count(rows, (r) => !r.scheduled && final(r) && r.off > 0)} of ${count(rows, (r) => !r.scheduled)}`,
    'answers lost / stored twice': `${count(played, (r) => r.kind === 'llm' && !final(r))} / ${sum((v) => v.spare.length)}`,
    'say(): played, lost': `${says.length}, ${count(says, (r) => !final(r))}`,
    "caller's words whole": `${sum((v) => v.said - v.lostWords.length)} of ${sum((v) => v.said)}`,
    "caller's words whole in LiveKit's history": `${sum((v) => v.said - v.lostByLiveKit.length)} of ${sum((v) => v.said)}`,
    'next prompt: > 3 unheard words / > 3 heard words missing': `${count(prompts, (r) => r.unheard > 3)} / ${count(prompts, (r) => r.missing > 3)} of ${prompts.length}`,
    'confidence >= 90, right within one word': `${count(sure, (r) => r.off <= 1)} of ${sure.length} (${percent(count(sure, (r) => r.off <= 1), sure.length)})`,
    'answers in the wrong order': sum((v) => v.disordered),
    'events refused': sum((v) => v.refused),
    'script faults': sum((v) => v.notes.length),
  };
}
