package handlers

import (
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// The default wait before a filler in ms, as Agora documents it, and the length of a phrase in
// bytes.
const (
	fillerWaitMS = 1500
	maxPhrase    = 2048
)

func (f *fillerWords) rules() error {
	for i, phrase := range f.Content.Static.Phrases {
		at := "properties.filler_words.content.static_config.phrases[" + strconv.Itoa(i) + "]"
		phrase, err := text.Clean(at, phrase, maxPhrase)
		if err != nil {
			return err
		}
		f.Content.Static.Phrases[i] = phrase
		if strings.TrimSpace(phrase) == "" {
			return fault.At(fault.Invalid, at, "must not be blank")
		}
	}
	return nil
}

// settings returns the filler for the domain: none unless fillers are enabled and have phrases.
func (f *fillerWords) settings() memory.Filler {
	if !f.Enable || len(f.Content.Static.Phrases) == 0 {
		return memory.Filler{}
	}
	out := memory.Filler{WaitMS: f.Trigger.Fixed.WaitMS, Phrases: f.Content.Static.Phrases, Shuffle: f.Content.Static.Rule != "round_robin"}
	if out.WaitMS == 0 {
		out.WaitMS = fillerWaitMS
	}
	return out
}
