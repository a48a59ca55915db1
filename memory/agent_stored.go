package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// EncodePrivate gives what stores seal of an agent, its settings and properties, as one blob, secrets in clear: the length of the settings, the settings, the properties.
func EncodePrivate(a *Agent) ([]byte, error) {
	settings, err := EncodeSettings(a.Settings)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(make([]byte, 0, len(settings)+len(a.Properties)+4), uint64(len(settings)))
	return append(append(b, settings...), a.Properties...), nil
}

// DecodePrivate reads what EncodePrivate wrote into a.
func DecodePrivate(b []byte, a *Agent) (err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || uint64(len(b)-used) < n {
		return errors.New("settings and properties are cut short")
	}
	b = b[used:]
	if a.Settings, err = DecodeSettings(b[:n]); err != nil {
		return err
	}
	if string(a.Settings.LLM.Params) == "null" { // encoding/json's word for none
		a.Settings.LLM.Params = nil
	}
	a.Properties = nil
	if p := b[n:]; len(p) > 0 {
		a.Properties = bytes.Clone(p)
	}
	return nil
}
