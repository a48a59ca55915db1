package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Tracing holds the standard variables of OpenTelemetry that say where traces go. The exporter
// reads the others (headers, certificates, batches, sampling) itself. A value that OpenTelemetry
// allows and Heardlog cannot follow is a mistake: traces that are silently lost are missed only
// when needed.
type Tracing struct {
	Base     string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" validate:"omitempty,collector"`
	Endpoint string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" validate:"omitempty,collector"`
	// "" = otlp if an endpoint is set.
	Exporter       string      `env:"OTEL_TRACES_EXPORTER" validate:"omitempty,oneof=otlp none"`
	Protocol       string      `env:"OTEL_EXPORTER_OTLP_PROTOCOL" validate:"omitempty,oneof=http/protobuf"`
	TracesProtocol string      `env:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" validate:"omitempty,oneof=http/protobuf"`
	Off            bool        `env:"OTEL_SDK_DISABLED"`
	Service        string      `env:"OTEL_SERVICE_NAME" validate:"line"`
	Attributes     [][2]string `env:"OTEL_RESOURCE_ATTRIBUTES"`
	Capture        string      `env:"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" validate:"omitempty,oneofci=span_only event_only span_and_event no_content true false"`

	Content bool // spans hold what was said
}

// derive sets Content. Heardlog makes no events, so event_only captures nothing.
func (t *Tracing) derive() {
	switch strings.ToLower(t.Capture) {
	case "true", "span_only", "span_and_event":
		t.Content = true
	}
}

// defaultCollector is the default of OTLP over HTTP.
const defaultCollector = "http://localhost:4318"

// URL returns the address that traces are sent to, or "" if none are made.
func (t Tracing) URL() string {
	switch {
	case t.Off || t.Exporter == "none" || t.Exporter == "" && t.Base == "" && t.Endpoint == "":
		return ""
	case t.Endpoint != "":
		return t.Endpoint
	case t.Base != "":
		return strings.TrimSuffix(t.Base, "/") + "/v1/traces"
	}
	return defaultCollector + "/v1/traces"
}

// maxAttributes limits OTEL_RESOURCE_ATTRIBUTES.
const maxAttributes = 64

func parseAttributes(v string) ([][2]string, error) {
	var out [][2]string
	for e := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(e) == "" {
			continue
		}
		key, value, ok := strings.Cut(e, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			return nil, errors.New("must be key=value, comma separated, with values percent-encoded")
		}
		if len(out) == maxAttributes {
			return nil, fmt.Errorf("must have at most %d attributes", maxAttributes)
		}
		out = append(out, [2]string{key, value})
	}
	return out, nil
}
