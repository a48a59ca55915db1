package postgres

// key names an agent.
type key struct{ project, id string }
