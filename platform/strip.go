package platform

import "github.com/tidwall/gjson"

// Extra tells whether a top-level member of a chat request is one that a platform adds for its own endpoint: strict upstreams refuse them, and some
// hold the platform's secrets (reference/platforms.md 2.4). With engine the upstream is one that understands Agora's engine: its fields stay. It is asked for
// every member of every request, so that it is a switch; a test holds it to Profiles.
func Extra(name string, value []byte, engine bool) bool {
	switch name {
	case "call", "customer", "phoneNumber", "elevenlabs_extra_body", "user_id", "call_id":
		return true
	case "turn_id", "timestamp", "interruptable", "channel", "app_id", "appId", "user_uid", "userId", "agent_uid", "user_name", "rtm_token":
		return !engine
	case "context": // others have members of that name: Agora's is told by what is in it
		if engine || len(value) == 0 || value[0] != '{' {
			return false
		}
		for _, key := range []string{"presence", "appId", "userId", "channel"} {
			if gjson.GetBytes(value, key).Exists() {
				return true
			}
		}
	}
	return false
}
