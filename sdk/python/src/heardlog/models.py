"""What the API takes and returns, as dictionaries.

Generated from openapi.yaml by tools/generate.py; do not edit. Fields that are not here may come
with a newer server.
"""

from __future__ import annotations

from typing import Any, TypedDict


class _AgentShown(TypedDict):
    agent_id: str
    name: str
    status: str
    labels: dict[str, str]
    started_at: str
    # How many messages were stored.
    messages: int
    # The number after the highest turn_id.
    turns: int
    tally: dict[str, Any]


class AgentShown(_AgentShown, total=False):
    channel: str
    # Why it ended; OK after a leave. Absent while it runs.
    reason: str
    # The caller.
    user_id: str
    # The memory model that it joined with; absent without one.
    memory_model: str
    settings: dict[str, Any]
    stopped_at: str
    # The voice platform of the call, by its first key; absent if unknown.
    platform: str
    # With `include=shape`: what happened, in order, as pairs of a kind and a length in ms. The
    # kinds are `caller`, `heard`, `unheard`, `silence` (from 1 s) and `tool`. The lengths of
    # speech are estimated from its text, as far as no report states them, and `unheard` words
    # took no time. Absent for a call of more than 2,000 messages; in a list also for one in an
    # archive, and once the calls before it have 20,000 messages.
    shape: list[list[str | int]]
    # With `include=shape`, if there is a `shape`: the worst of each kind, the worst kinds first.
    moments: list[Moment]
    # Scores of the call and its turns; absent if there are none.
    scores: list[Score]
    # Checks that have found something in a call that has ended; absent if there are none.
    checks: list[str]
    hosted: HostedCall
    # Keys that find the agent besides its ID: the platform's names of the call.
    keys: list[str]
    # The agent that had the key before; it has ended.
    previous_agent_id: str
    # The agent was found by something that several calls may share, such as a user or the first
    # words.
    weak_key: bool
    inherited: Inherited
    # Until then no text is stored; absent without a pause.
    paused_until: str


class _Context(TypedDict):
    agent_id: str
    messages: list[ContextMessage]
    # How many messages of the memory were left out, counted among those that a policy takes into
    # account: the newest 4096 messages of the ledger and up to 64 older instructions.
    dropped: int
    # Their cost: a quarter of the code points, or the exact count if the policy asks for it.
    estimated_tokens: int
    # IDs of tool calls that got a placeholder for their result.
    healed: list[str]
    policy: Policy


class Context(_Context, total=False):
    # How many messages were shortened, because what must stay exceeded the budget.
    shortened: int
    # IDs of the facts and of the turns of earlier calls in the messages whose `metadata.source`
    # is `memory`; absent without one. See `properties.heardlog.remember`.
    recalled: list[str]


class _ContextMessage(TypedDict):
    role: str
    content: str | list[Any] | dict[str, Any] | None


class ContextMessage(_ContextMessage, total=False):
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    name: str
    # custom format only.
    turn_id: int
    timestamp: int
    # custom format only, except that a message of what was recalled has `source: memory` in both.
    metadata: dict[str, Any]


class _Cost(TypedDict):
    # For prompts and answers.
    usd: float
    # The part for words that the caller did not hear.
    unheard_usd: float
    # The part for answers whose tokens the LLM did not report, as when it was cut: a token is
    # assumed for every four bytes of the request and every four characters of the answer.
    estimated_usd: float


class Cost(_Cost, total=False):
    """What answers cost in US dollars, by the prices of `HEARDLOG_LLM_PRICES` at the time of
    each answer. Absent if no model had a price.
    """

    # How much more it would be if the LLM had nothing of the prompts in its cache. Absent if 0.
    saved_usd: float


class _EvidenceAnswer(TypedDict):
    # The type of an event that reports what was heard or that the call is over; otherwise empty.
    event: str
    recorded: list[EvidenceAnswerRecorded]
    unmatched: int


class EvidenceAnswer(_EvidenceAnswer, total=False):
    # Absent if the event has no evidence and names no known call.
    agent_id: str
    # The event says that the call is over; its agent has ended.
    ended: bool


class _EvidenceAnswerRecorded(TypedDict):
    heard: str
    changed: bool


class EvidenceAnswerRecorded(_EvidenceAnswerRecorded, total=False):
    seq: int
    turn_id: int
    method: str
    pending: bool


class _Fact(TypedDict):
    id: str
    user_id: str
    content: str
    kind: str
    # Whom or what it is about.
    subject: str
    # Which property of it.
    attribute: str
    topics: list[str]
    confidence: float
    state: str
    valid_from: str | None
    valid_to: str | None
    # The fact that it replaces, or will once it is active.
    supersedes: str | None
    superseded_by: str | None
    # How often it was reinforced.
    hits: int
    source: FactSource | None
    # `api`, `tool`, or the extractor with its version.
    by: str
    created_at: str
    last_seen_at: str
    updated_at: str


class Fact(_Fact, total=False):
    # Why it is a draft or withdrawn.
    reason: str
    # When it ceased to be active.
    ended_at: str


class _FactBlock(TypedDict):
    block: str
    facts: list[Fact]


class FactBlock(_FactBlock, total=False):
    # Only if the consent of the caller does not allow facts: none is shown.
    consent: str


class _FactHit(TypedDict):
    kind: str
    # The fact's ID.
    id: str
    # Comparable within one answer only.
    score: float
    content: str
    # When it was added.
    at: str
    fact: Fact


class FactHit(_FactHit, total=False):
    # IDs of the turns that prove it.
    also: list[str]
    explain: dict[str, float]


class _FactSource(TypedDict):
    agent_id: str
    from_seq: int
    to_seq: int
    # Words of those messages. Case, spaces and punctuation do not matter.
    quote: str
    speaker: str


class FactSource(_FactSource, total=False):
    """Where the fact was said."""

    # How it is known that an answer was heard; absent for words of the caller.
    heard: str


class HistoryMessage(TypedDict):
    role: str
    # For an interrupted answer, what was heard.
    content: str
    turn_id: int
    timestamp: int
    metadata: Metadata


class _HostedCall(TypedDict):
    platform: str
    # The platform's ID of the call.
    call_id: str


class HostedCall(_HostedCall, total=False):
    """What a hosted platform says of a call that it has reported here; absent on other agents."""

    # In the platform's words.
    end_reason: str
    # Where the platform keeps the recording.
    recording_url: str
    # What the platform charged, in US dollars.
    cost_usd: float


class _Inherited(TypedDict):
    # The agent whose memory it continues.
    agent_id: str
    mode: str
    # How many messages were copied.
    messages: int
    # The `seq` of the last of them; later messages are the agent's own. 0 for none.
    up_to_seq: int
    # There was a summary.
    summary: bool
    # Part of the summary is not written yet.
    pending: bool


class Inherited(_Inherited, total=False):
    """What an agent took over when it started; see `properties.heardlog.session`."""

    # How many older ones were left out; at most 1000 are copied.
    left_out: int


class Interrupted(TypedDict):
    agent_id: str
    channel: str
    start_ts: int
    interrupted: list[InterruptedInterrupted]


class _InterruptedInterrupted(TypedDict):
    turn_id: int


class InterruptedInterrupted(_InterruptedInterrupted, total=False):
    """Only the turn is known while nothing of its answer is stored."""

    seq: int
    generated: str
    heard: str
    # The kind of evidence.
    method: str


class _JoinAnswer(TypedDict):
    agent_id: str
    create_ts: int
    status: str


class JoinAnswer(_JoinAnswer, total=False):
    inherited: Inherited


class _LedgerEntry(TypedDict):
    # Position in the agent's ledger; may skip.
    seq: int
    role: str
    content: str
    turn_id: int
    timestamp: int
    # superseded: replaced by a later answer to the same user turn; empty: nothing was generated
    # or sent; unplayed: the platform's list left it out although the call went on, so it was not
    # heard; replaced: the platform said something else instead; dropped: cut from the memory
    # permanently, by a policy that applies on write or by a trim; merged: merged into an earlier
    # message; removed: cleared, without content. Only final messages are in history and context.
    state: str
    metadata: LedgerEntryMetadata


class LedgerEntry(_LedgerEntry, total=False):
    """A message with everything that is known of it."""

    # The client's ID for it.
    id: str
    # The content as given, if given as parts.
    parts: list[dict[str, Any]]
    tool_calls: list[dict[str, Any]]
    tool_call_id: str
    name: str
    # Everything that the model generated, its thoughts (<think>) included.
    generated: str
    # Whether that is certainly everything.
    generated_complete: bool
    # What was sent to the client.
    sent: str
    # What the caller heard.
    heard: str
    evidence: LedgerEntryEvidence
    # When the answer was played, where reports state it: the whole audio of which a report says
    # how much was played, then the pieces whose beginning was reported, oldest first. Absent if
    # nothing is known.
    audio: list[LedgerEntryAudio]
    # Only the connection to the client shows that this answer was heard. An echo, a report or the
    # end of the call settles it; another request for the same words replaces it.
    provisional: bool
    # Absent: accepted. Neither an LLM nor the history gets drafts and discarded messages.
    status: str
    # Whose message it is; only the IDs that were given.
    scope: LedgerEntryScope
    importance: float
    category: str
    # The message is only in the ledger: it was cleared, dropped, merged or removed, or its status
    # keeps it out of the memory.
    in_memory: bool
    # With state superseded: a later answer to the same words replaced this one.
    ghost: bool
    # Why the model ended the answer. `length` and `content_filter`: it would have said more.
    finish_reason: str
    usage: dict[str, Any]
    # Name of the LLM that answered.
    upstream: str
    # The model that answered, as the LLM names it, or else as it was asked for.
    model: str
    cost: Cost
    # What was said while the LLM was thinking (filler_words); sent to the client, not generated
    # by the model.
    filler: str
    # IDs of the facts and of the turns of earlier calls that the model was given for this answer;
    # see `properties.heardlog.remember`.
    recalled: list[str]
    timings: dict[str, Any]
    failure: dict[str, Any]


class LedgerEntryAudio(TypedDict, total=False):
    # When it began; absent if that is not known.
    start_ms: int
    # How much of it was played.
    heard_ms: int
    # Its words, separated by single spaces; absent if their times are not known.
    words: str
    # When each word ended, in ms after the start.
    word_ends_ms: list[int]


class _LedgerEntryEvidence(TypedDict):
    # Where `heard` comes from, best first.
    method: str


class LedgerEntryEvidence(_LedgerEntryEvidence, total=False):
    at: int
    # The probability, in percent, that `heard` is right within one word. Absent if only the
    # connection to the client shows it.
    confidence: int
    # The evidence that other evidence has replaced, oldest first; at most 8.
    earlier: list[LedgerEntryEvidenceEarlier]


class _LedgerEntryEvidenceEarlier(TypedDict):
    method: str
    heard: str
    # When it was replaced.
    until: int


class LedgerEntryEvidenceEarlier(_LedgerEntryEvidenceEarlier, total=False):
    # The state of the answer then; absent if it counted.
    state: str
    at: int
    confidence: int


class LedgerEntryMetadata(TypedDict, total=False):
    source: str
    interrupted: bool
    interrupt_timestamp: int
    original: str


class LedgerEntryScope(TypedDict, total=False):
    """Whose message it is; only the IDs that were given."""

    user_id: str
    session_id: str
    task_id: str


class _Metadata(TypedDict):
    source: str


class Metadata(_Metadata, total=False):
    """Beside these, what the client sent."""

    # Absent if it was not.
    interrupted: bool
    interrupt_timestamp: int
    # The whole generated text; only if interrupted.
    original: str
    # Set by Heardlog to `length` or `content_filter` if the model would have said more than it
    # did.
    finish_reason: str


class _Moment(TypedDict):
    # The last failure of the LLM, the answer of which the most words were not heard, the longest
    # silence of at least 2 s, the last call of a tool without a result, the slowest first token.
    kind: str
    # The message; of a silence, what was said next.
    seq: int
    turn_id: int


class Moment(_Moment, total=False):
    """Something that happened at a message of a call."""

    # How long the silence or the first token took.
    ms: int
    # How many words were not heard.
    words: int
    # These words, at most 120 characters and an ellipsis.
    text: str
    # The tool; of a silence, one that ran meanwhile.
    tool: str
    # Why the LLM failed, such as `upstream_error`; empty if that is not known.
    error: str
    # Of the failed request.
    status: int
    # The LLM that was asked last.
    upstream: str


class _NewMessage(TypedDict):
    role: str


class NewMessage(_NewMessage, total=False):
    # The client's ID for it; unique in the agent.
    id: str
    # Text of at most 4 MiB, or parts as OpenAI has them. Parts of other types are kept, and sent
    # to the vendor `custom` only. May be null with `tool_calls`. Broken UTF-8 is repaired, and
    # NUL becomes U+FFFD.
    content: str | list[dict[str, Any]] | None
    turn_id: int
    timestamp: int
    # user: message (default), asr, command; assistant: llm (default), greeting, llm_failure,
    # silence, command; tool: tool. It may also be in metadata.
    source: str
    # At most 16 KiB. `interrupted`, `interrupt_timestamp` and `original` of an assistant message
    # are used; everything else is kept, and so is what a provider adds to the message itself,
    # such as `annotations`.
    metadata: dict[str, Any]
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str
    name: str
    # Neither an LLM nor the history gets drafts and discarded messages. Default: `accepted`.
    status: str
    scope: NewMessageScope
    # For the strategy importance_based. By default it is derived from role, age and tool use.
    importance: float
    category: str


class NewMessageScope(TypedDict, total=False):
    user_id: str
    session_id: str
    task_id: str


class Policy(TypedDict, total=False):
    """Which messages an LLM gets. An absent field is taken from the next level. See
    docs/guides/policy.md.
    """

    # What this level starts from; it overrides the next levels. Answers have the first six names;
    # agora, ovos, orbiter, lauren and ossa are other names of the first five.
    preset: str
    # If false, no memory, only the utterance.
    enabled: bool
    # 0 = no limit.
    max_messages: int
    # 0 = no limit.
    max_tokens: int
    # Rounds, each opened by a user message; 0 = no limit.
    max_rounds: int
    # Cuts keep system messages.
    keep_system: bool
    # If false, system messages of the memory are left out. The agent's llm.system_messages are
    # always sent.
    include_system: bool
    include_tool_results: bool
    strategy: str
    # write: the memory itself is cut, permanently, when messages are appended.
    apply: str
    normalise: dict[str, Any]
    tool_call_integrity: str
    keep_last_user: bool
    projection: str
    summarize_at: float
    summary_model: str
    keep_recent: int
    # estimate, or a model family for an exact count.
    tokens: str


class _Recalled(TypedDict):
    # How many calls of the user are stored. 0 of a user of whom nothing is known.
    calls: int
    hits: list[TurnHit | FactHit]
    # How much of the query the first hits and the turns around them cover. Use nothing of an
    # answer with `none`.
    strength: str
    # What is missing: `cold`, the caller's calls are still being read; `behind`, changed calls
    # could not be read in time; `partial`, the oldest calls do not fit into `HEARDLOG_RECALL_MB`,
    # or not all turns were searched in time; `facts`, the facts could not be read in time. What
    # was read is searched.
    degraded: list[str]
    took_ms: float
    # Everything stored before this moment was searched, unless `degraded` says otherwise.
    up_to: str


class Recalled(_Recalled, total=False):
    # Set if the user's consent allows no recall. Nothing was searched.
    consent: str


class _RecalledTurn(TypedDict):
    # The agent's ID and the message's seq.
    id: str
    # What was heard.
    content: str
    role: str
    at: str
    agent_id: str
    seq: int
    turn_id: int


class RecalledTurn(_RecalledTurn, total=False):
    # The client's ID of the message.
    message_id: str
    session_id: str
    # Of answers.
    heard: RecalledTurnHeard


class _RecalledTurnHeard(TypedDict):
    # Heard to its end, as far as is known.
    complete: bool


class RecalledTurnHeard(_RecalledTurnHeard, total=False):
    """Of answers."""

    # How it is known what was heard.
    method: str


class _Score(TypedDict):
    id: str
    name: str
    value: float | bool | str
    updated_at: str


class Score(_Score, total=False):
    # Absent if the whole call was scored.
    turn_id: int
    comment: str
    author: str
    source: str


class _TurnHit(TypedDict):
    # The agent's ID and the message's seq.
    id: str
    # What was heard.
    content: str
    role: str
    at: str
    agent_id: str
    seq: int
    turn_id: int
    kind: str
    # Comparable within one answer only.
    score: float


class TurnHit(_TurnHit, total=False):
    # The client's ID of the message.
    message_id: str
    session_id: str
    # Of answers.
    heard: TurnHitHeard
    context: list[RecalledTurn]
    # IDs of older turns that say the same, and of facts that this turn proves.
    also: list[str]
    explain: dict[str, float]


class _TurnHitHeard(TypedDict):
    # Heard to its end, as far as is known.
    complete: bool


class TurnHitHeard(_TurnHitHeard, total=False):
    """Of answers."""

    # How it is known what was heard.
    method: str
