package memory

// Amend changes the message's Rare: change gets a copy, which replaces it. Rare is nil if the copy
// is empty.
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

// InterruptMSFrom returns Rare.InterruptMSFrom, or "".
func (m *Message) InterruptMSFrom() Method {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.InterruptMSFrom
}

// InterruptByFrom returns Rare.InterruptByFrom, or "".
func (m *Message) InterruptByFrom() Method {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.InterruptByFrom
}

// Playback returns Rare.Playback, or nil.
func (m *Message) Playback() *Playback {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Playback
}

// PlatformID returns Rare.PlatformID, or "".
func (m *Message) PlatformID() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.PlatformID
}

// Earlier returns Rare.Earlier, or nil.
func (m *Message) Earlier() []Past {
	if m.Rare == nil || m.Rare.Earlier == nil {
		return nil
	}
	return *m.Rare.Earlier
}

// UnheardTokens returns Rare.UnheardTokens, or 0.
func (m *Message) UnheardTokens() int64 {
	if m.Rare == nil {
		return 0
	}
	return m.Rare.UnheardTokens
}

// Upstream returns Rare.Upstream, or "".
func (m *Message) Upstream() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Upstream
}

// Model returns Rare.Model, or "".
func (m *Message) Model() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Model
}

// Cost returns Rare.Cost, or nil.
func (m *Message) Cost() *Cost {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Cost
}

// Filler returns Rare.Filler, or "".
func (m *Message) Filler() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Filler
}

// Recalled returns Rare.Recalled, or nil.
func (m *Message) Recalled() []string {
	if m.Rare == nil || m.Rare.Recalled == nil {
		return nil
	}
	return *m.Rare.Recalled
}

// Told returns Rare.Told, or nil.
func (m *Message) Told() *Told {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Told
}

// DropTold removes Told, which belongs to one place in one ledger.
func (m *Message) DropTold() {
	if m.Told() != nil {
		m.Amend(func(r *Rare) { r.Told = nil })
	}
}

// Produced returns all that the model produced, its thoughts included.
func (m *Message) Produced() string {
	if m.Rare != nil && m.WithThoughts != "" {
		return m.WithThoughts
	}
	return m.Original()
}

// Members returns Rare.Members, or "".
func (m *Message) Members() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Members
}

// Origin returns Rare.Origin, or "".
func (m *Message) Origin() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Origin
}

// Scope returns Rare.Scope, or the zero Scope.
func (m *Message) Scope() Scope {
	if m.Rare == nil {
		return Scope{}
	}
	return m.Rare.Scope
}

// Importance returns Rare.Importance, or nil.
func (m *Message) Importance() *float64 {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Importance
}

// Category returns Rare.Category, or "".
func (m *Message) Category() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Category
}

// Raw returns Rare.Raw, or "".
func (m *Message) Raw() string {
	if m.Rare == nil {
		return ""
	}
	return m.Rare.Raw
}

// Item returns Rare.Item, or nil.
func (m *Message) Item() *Item {
	if m.Rare == nil {
		return nil
	}
	return m.Rare.Item
}

// dropRaw removes Raw, which no longer matches the message.
func (m *Message) dropRaw() {
	if m.Raw() != "" {
		m.Amend(func(r *Rare) { r.Raw = "" })
	}
}

// DropPlayback removes Playback and Earlier, which hold words of the message.
func (m *Message) DropPlayback() {
	if m.Playback() != nil || m.Earlier() != nil {
		m.Amend(func(r *Rare) { r.Playback, r.Earlier = nil, nil })
	}
}

// CopyOf returns Rare.CopyOf, or 0.
func (m *Message) CopyOf() int64 {
	if m.Rare == nil {
		return 0
	}
	return m.Rare.CopyOf
}
