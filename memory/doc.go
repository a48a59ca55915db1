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
// # Ledger and Store
//
// A Ledger keeps agents and their messages. Every change of an agent is a Decision: a function that
// sees an AgentView and returns a Change, which is stored as a whole or not at all. Package engine
// implements Ledger over a Store, which compares versions and sets values.
//
// # Related packages
//
// This package holds the nouns and the rules that follow from a message or a ledger alone: which
// evidence wins, which turn a message joins, what history shows. Package agents runs agents by
// these rules: join, append, answers, interruption, timers, the end.
//
// Below this package, package heard finds the heard part of an answer, package view decides how the
// model is shown its answers, and package window has the policies. Above package agents, package
// evidence applies what platforms report, package context builds what a model is given and keeps
// summaries and snapshots, package memories serves single messages as memories, package turns
// derives the table of turns, and package ingest records agents that run at Agora.
package memory
