// Package memory keeps the conversations of voice agents. A voice conversation has three truths
// about every answer, and they differ whenever the caller interrupts:
//
//   - generated: what the model produced,
//   - sent: what left this server before the answer was cut,
//   - heard: what the caller actually heard before speaking again.
//
// A Message stores all three. Content is the best evidence of what was heard, Generated and Sent
// are set where they differ, and Method states how the heard text is known. Better evidence
// replaces weaker evidence at any time and in any order; see Message.WithEvidence. What goes to the
// model, and what history shows, is by default what was heard.
//
// # Nouns
//
// An Agent is one running conversation, from join to leave. Its messages form a ledger: they are
// appended with a position (Seq) and a turn, and never removed while the agent exists. The agent's
// memory is the part of the ledger from Memory.BaseSeq on, without messages that a policy dropped.
// A Turn is one exchange: the caller's words, and the answer that is being generated or is stored.
//
// # Service
//
// Service implements every rule that does not depend on the store:
//
//   - Join, Update, Leave, Erase: the life of an agent,
//   - Append, History, Messages: its ledger,
//   - Begin, Settle, Complete: one answer, as package internal/turn runs it,
//   - Interrupt, Cut, Speak: what happens while an answer is being sent,
//   - Follow, Watch: what changes, for live tails,
//   - Run: timers, and the coordination of several servers on one store.
//
// A Service reads and writes through a Ledger. Every change is a Decision: a function that sees an
// AgentView and returns a Change, which is stored as a whole or not at all.
//
// # Related packages
//
// Package heard finds the heard part of an answer, package evidence applies what platforms report,
// package context builds what a model is given and trims memories, package window has the policies,
// and package archive records agents that run at Agora.
package memory
