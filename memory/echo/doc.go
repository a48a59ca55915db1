// Package echo reconciles the list of messages that a platform re-sends with each call with the
// ledger of the same conversation. Reconcile returns what is new in the list, and what the list
// shows about the answers in the ledger: heard, interrupted, never played, or replaced.
//
// Platforms drop old turns, put summaries in their place, merge messages and cut or rewrite
// answers. Both lists are therefore aligned as a whole, by the caller's words and by our answers,
// with gaps on both sides; positions are never compared. A text that equals one of our answers is
// ours wherever it is. If nothing aligns, only the messages after the list's last answer are new,
// so that no list is stored twice.
//
// The package is pure: it knows messages, but neither agents nor stores.
package echo
