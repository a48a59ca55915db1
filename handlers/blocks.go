package handlers

import (
	"encoding/json"
	"strconv"

	"github.com/heardlog/heardlog/internal/fault"
)

// checkBlocks refuses content parts that every model would refuse: they would be stored, and sent
// again with each turn. Types that are not known here may be those of a vendor.
func checkBlocks(field string, content json.RawMessage) error {
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		return nil // refused where the content is read
	}
	for i, part := range list {
		at := field + "[" + strconv.Itoa(i) + "]"
		switch kind := stringOf(part["type"]); kind {
		case "":
			return fault.At(fault.Invalid, at+".type", "must be a string, such as text or image_url")
		case "text", "refusal":
			var s *string
			if json.Unmarshal(part[kind], &s) != nil || s == nil {
				return fault.At(fault.Invalid, at+"."+kind, "must be a string")
			}
		case "image_url", "audio_url", "video_url":
			var link struct {
				URL string `json:"url"`
			}
			_ = json.Unmarshal(part[kind], &link) // some clients send the URL itself
			if link.URL == "" && stringOf(part[kind]) == "" {
				return fault.At(fault.Invalid, at+"."+kind, "must be an object with a url")
			}
		case "input_audio":
			var audio struct {
				Data string `json:"data"`
			}
			if json.Unmarshal(part[kind], &audio) != nil || audio.Data == "" {
				return fault.At(fault.Invalid, at+".input_audio", "must be an object with data")
			}
		case "file":
			if raw := part[kind]; len(raw) == 0 || raw[0] != '{' {
				return fault.At(fault.Invalid, at+".file", "must be an object")
			}
		}
	}
	return nil
}

// stringOf returns a JSON string, or "" for anything else.
func stringOf(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
