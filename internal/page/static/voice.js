// A voice that says an answer while it is written. What it has said is what the caller heard.

const msPerWord = 240; // without a voice: about four words a second

// words cuts a text before each space that a word follows.
export const words = text => text.match(/\s*\S+/g) ?? [];
const count = text => words(text).length;

// canSpeak reports whether the browser has a voice of its own.
export const canSpeak = () => Boolean(globalThis.speechSynthesis?.getVoices().length);

// speak starts a voice. It calls onWord with the number of words that were said whenever that
// changes, and onEnd when all is said. Aloud, a word is said when the browser's voice begins the
// next one; in silence, words come at a speaking pace. The text comes by more, its end by done, and
// stop ends the voice early.
export function speak({aloud, onWord, onEnd}) {
  let text = "", whole = false, said = 0, given = 0, over = false, timer;
  const tell = n => { if (!over && n > said) onWord(said = n); };
  const finish = () => { if (!over && whole && given === text.length && said >= count(text)) { stop(); onEnd(); } };
  // next gives the voice the sentences that are complete. It knows their place in the text.
  function next() {
    const rest = text.slice(given), length = whole ? rest.length : /^[\s\S]*[.!?…]\s/.exec(rest)?.[0].length ?? 0;
    if (!length) return finish();
    const u = new SpeechSynthesisUtterance(rest.slice(0, length)), before = count(text.slice(0, given)), all = before + count(u.text);
    given += length;
    u.lang = "en";
    u.onboundary = e => { if (e.name === "word") tell(before + count(u.text.slice(0, e.charIndex))); };
    u.onend = () => { tell(all); finish(); };
    u.onerror = e => { if (!over && e.error !== "interrupted" && e.error !== "canceled") silent(); };
    speechSynthesis.speak(u);
  }
  // silent goes on without sound: the browser has refused to speak.
  function silent() {
    aloud = false;
    timer ??= setInterval(() => {
      if (said < count(text)) tell(said + 1);
      else if (whole) { given = text.length; finish(); }
    }, msPerWord);
  }
  function stop() {
    over = true;
    clearInterval(timer);
    if (globalThis.speechSynthesis) speechSynthesis.cancel();
    return said;
  }
  if (!aloud) silent();
  return {
    more(piece) { text += piece; if (aloud) next(); },
    done() { whole = true; if (aloud) next(); },
    stop,
  };
}
