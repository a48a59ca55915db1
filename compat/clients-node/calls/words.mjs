// Randomness with a seed, and what callers and agents say.

// random returns a generator (mulberry32) with the helpers that the script needs.
export function random(seed) {
  let a = seed >>> 0;
  const next = () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    next,
    between: (low, high) => low + next() * (high - low),
    whole: (low, high) => Math.floor(low + next() * (high - low + 1)),
    pick: (list) => list[Math.floor(next() * list.length)],
    chance: (p) => next() < p,
  };
}

const openings = ['The museum is', 'My colleague says', 'Your train leaves', 'There are', 'I think that', 'You can always', 'On Sundays', 'The next one', 'Of course,', 'As far as I know', 'It depends on', 'Well,'];
const nouns = 'river station market garden ticket platform bridge window letter captain morning harbour kitchen teacher village mountain blanket engine painter holiday forest lantern orchard passenger museum corridor festival sandwich umbrella machine library meadow tunnel keeper sparrow ladder theatre basket compass velvet pepper saddle island cottage chimney'.split(' ');
const verbs = 'opens closes finds carries follows leaves reaches watches repairs borrows paints crosses remembers counts visits prefers holds meets brings shows'.split(' ');
const adjectives = 'small green early late quiet heavy bright narrow old gentle wooden northern empty crowded golden distant careful hollow sudden silver'.split(' ');
const joins = ['and', 'because', 'while', 'but', 'so', 'after', 'before'];
const asks = ['When does', 'Where is', 'Can you tell me about', 'Is there', 'How far is', 'What about', 'Do you know', 'I would like to hear about', 'Please explain', 'Who owns'];

function clause(r) {
  return `the ${r.pick(adjectives)} ${r.pick(nouns)} ${r.pick(verbs)} the ${r.pick(adjectives)} ${r.pick(nouns)}`;
}

// answer returns one to three sentences. Many answers of a call begin alike.
export function answer(r) {
  const sentences = [];
  for (let n = r.whole(1, 3); n > 0; n--) {
    sentences.push(`${r.pick(openings)} ${clause(r)}${r.chance(0.4) ? ` ${r.pick(joins)} ${clause(r)}` : ''}.`);
  }
  return sentences.join(' ');
}

// question returns what the caller says.
export function question(r) {
  return `${r.pick(asks)} ${clause(r)}${r.chance(0.3) ? ` ${r.pick(joins)} ${clause(r)}` : ''}?`;
}

// announcement is a text for say().
export function announcement(r) {
  return `${r.pick(['One moment please,', 'Please hold on,', 'By the way,', 'Just so you know,'])} ${clause(r)}.`;
}

// wordsOf splits a text into words as they are compared: lower case, without punctuation.
export function wordsOf(text) {
  return (text ?? '').toLowerCase().replace(/[^\p{L}\p{N}' ]+/gu, ' ').split(/\s+/).filter(Boolean);
}

// distance is the number of words to insert, delete or replace.
export function distance(a, b) {
  let row = b.map((_, i) => i + 1);
  row.unshift(0);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}
