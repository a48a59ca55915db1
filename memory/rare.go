package memory

// Amend gives the message a Rare of its own, as change leaves it: nil where nothing is left in it.
func (m *Message) Amend(change func(*Rare)) {
	var r Rare
	if m.Rare != nil {
		r = *m.Rare
	}
	change(&r)
	if m.Rare = nil; r != (Rare{}) {
		m.Rare = &r
	}
}

// InterruptMSFrom gives Rare.InterruptMSFrom, or nothing.
func (m *Message) InterruptMSFrom() Method {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.InterruptMSFrom
}

// InterruptByFrom gives Rare.InterruptByFrom, or nothing.
func (m *Message) InterruptByFrom() Method {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.InterruptByFrom
}

// Playback gives Rare.Playback, or nothing.
func (m *Message) Playback() *Playback {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Playback
}

// UnheardTokens gives Rare.UnheardTokens, or nothing.
func (m *Message) UnheardTokens() int64 {
	if m.Rare == nil {
		return 0
	}
	return m.Rare.UnheardTokens
}

// Upstream gives Rare.Upstream, or nothing.
func (m *Message) Upstream() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Upstream
}

// Filler gives Rare.Filler, or nothing.
func (m *Message) Filler() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Filler
}

// Scope gives Rare.Scope, or nothing.
func (m *Message) Scope() Scope {
	if m.Rare == nil {
		return Scope{}
	}
	return m.Rare.Scope
}

// Importance gives Rare.Importance, or nothing.
func (m *Message) Importance() *float64 {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Importance
}

// Category gives Rare.Category, or nothing.
func (m *Message) Category() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Category
}

// Raw gives Rare.Raw, or nothing.
func (m *Message) Raw() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Raw
}

// Item gives Rare.Item, or nothing.
func (m *Message) Item() *Item {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Item
}

// forgetRaw takes away the object that the message was given as, where it is no more what the message says.
func (m *Message) forgetRaw() {
	if m.Raw() != "" {
		m.Amend(func(r *Rare) { r.Raw = "" })
	}
}

// unplayed takes away what reports told of the message's being played.
func (m *Message) unplayed() {
	if m.Playback() != nil {
		m.Amend(func(r *Rare) { r.Playback = nil })
	}
}

// CopyOf gives Rare.CopyOf, or nothing.
func (m *Message) CopyOf() int64 {
	if m.Rare == nil {
		return 0
	}
	return m.Rare.CopyOf
}
