package platform

import "github.com/heardlog/heardlog/internal/peek"

// PlatformOnly reports whether a platform adds this top-level member of a chat request for its own
// endpoint. Strict upstreams refuse such members, and some hold the platform's secrets. With engine
// set, the upstream understands Agora's engine, and its fields stay. PlatformOnly is called for
// every member of every request, so it is a switch; a test compares it with Profiles.
func PlatformOnly(name string, value []byte, engine bool) bool {
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
			if peek.At(value, key).Exists() {
				return true
			}
		}
	}
	return false
}
