package job

// The kinds of jobs that servers run, by their names in the store, the metrics, the log and lists.
const (
	Facts          = "facts"           // facts are extracted from a call that has ended
	Summary        = "summary"         // a call that has ended is summarized
	MemorySummary  = "memory_summary"  // what leaves the memory of a running agent is summarized
	Import         = "knowledge"       // a document becomes entries of a knowledge base
	Embedding      = "embedding"       // documents of a collection get embeddings
	TurnEmbedding  = "turn_embedding"  // turns of a caller get embeddings
	EmbeddingModel = "embedding_model" // the endpoint of embeddings is asked which model it is
	Checkpoint     = "checkpoint"      // the memory of an agent is saved
	Retention      = "retention"       // a call is erased at the end of its own retention
	Backup         = "backup"          // a backup is made, if one is due
	Compaction     = "compaction"      // unused space of the store is returned to the disk
	ExpiredKeys    = "expired_keys"    // keys and values whose time is over are erased, others evicted
	OldDeletions   = "old_deletions"   // deletions of records are forgotten
	OldErasures    = "old_erasures"    // erasures of callers are forgotten
	Erasures       = "erasures"        // erasures that were interrupted or held are applied
	Reports        = "reports"         // calls that have ended are counted for reports
	Archive        = "archive"         // a call that ended long ago moves into the archive
	ArchiveObjects = "archive_objects" // objects of the archive that no call needs are deleted
	OldDeliveries  = "old_deliveries"  // webhook deliveries that ended long ago are forgotten
	Replay         = "replay"          // requests of past turns are asked again
)

// StoredKinds are those whose jobs are in the store until they are done. Jobs of the others are
// found again when a server starts.
var StoredKinds = []string{Facts, Summary, Import, Replay}
