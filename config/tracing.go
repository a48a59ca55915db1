package config

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Tracing says where traces go. It is read from the standard variables of OpenTelemetry; the exporter reads those that are not listed here
// (headers, certificates, batches, sampling) by itself.
type Tracing struct {
	Off        bool   // OTEL_SDK_DISABLED
	Exporter   string // OTEL_TRACES_EXPORTER: otlp, none, or "" = otlp where an endpoint is set
	Base       string // OTEL_EXPORTER_OTLP_ENDPOINT
	Endpoint   string // OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
	Service    string // OTEL_SERVICE_NAME
	Attributes [][2]string
	Content    bool // OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT
}

// defaultCollector is where OTLP goes over HTTP when nothing else is said.
const defaultCollector = "http://localhost:4318"

// URL gives the address that traces are sent to; "" if none are to be made.
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

// maxAttributes bounds OTEL_RESOURCE_ATTRIBUTES.
const maxAttributes = 64

// tracingSettings lists the settings of OpenTelemetry that we read ourselves. What it asks for and we cannot do is refused: traces that are silently lost
// are found missing when they are needed.
func tracingSettings() []Setting {
	protocol := func(c *Config, v string) error {
		if v != "" && v != "http/protobuf" {
			return fmt.Errorf("%q is not http/protobuf, the only way in which traces are sent", v)
		}
		return nil
	}
	return []Setting{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "", "Base URL of an OpenTelemetry collector; traces are made and sent to its /v1/traces.", collectorInto(func(c *Config) *string { return &c.Tracing.Base })},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", "The same, as the whole URL for traces.", collectorInto(func(c *Config) *string { return &c.Tracing.Endpoint })},
		{"OTEL_TRACES_EXPORTER", "", "otlp makes traces also without an endpoint, then sent to http://localhost:4318; none makes none.", oneOf(func(c *Config) *string { return &c.Tracing.Exporter }, "", "otlp", "none")},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "", "http/protobuf, which is all there is.", protocol},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "", "The same, for traces.", protocol},
		{"OTEL_SDK_DISABLED", "", "true makes no traces.", boolInto(func(c *Config) *bool { return &c.Tracing.Off })},
		{"OTEL_SERVICE_NAME", "", "The service's name in traces; heardlog where neither this nor the next names one.", func(c *Config, v string) error { c.Tracing.Service = v; return oneLine(v) }},
		{"OTEL_RESOURCE_ATTRIBUTES", "", "What else traces say of this server: key=value, comma separated, values percent-encoded.", setAttributes},
		{"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "", "span_only, span_and_event or true puts what was said into traces; otherwise nothing of it is.", setContent},
	}
}

// collectorInto reads a collector's URL. The exporter sends no query: a key in it would be missed by the collector only.
func collectorInto(field func(*Config) *string) func(*Config, string) error {
	set := urlInto(field)
	return func(c *Config, v string) error {
		if strings.ContainsRune(v, '?') {
			return errors.New("must not hold a query; keys go into OTEL_EXPORTER_OTLP_HEADERS")
		}
		return set(c, v)
	}
}

// boolInto reads OpenTelemetry's booleans: case does not matter, nothing is false.
func boolInto(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) error {
		if v == "" {
			return nil
		}
		b, err := strconv.ParseBool(strings.ToLower(v))
		if err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		*field(c) = b
		return nil
	}
}

// setContent reads who may see what was said. Events are not made, so that a wish for them alone is a wish for nothing here.
func setContent(c *Config, v string) error {
	switch strings.ToLower(v) {
	case "", "false", "no_content", "event_only":
	case "true", "span_only", "span_and_event":
		c.Tracing.Content = true
	default:
		return fmt.Errorf("%q is not one of span_only, event_only, span_and_event, no_content, true, false", v)
	}
	return nil
}

func setAttributes(c *Config, v string) error {
	for e := range strings.SplitSeq(v, ",") {
		if strings.TrimSpace(e) == "" {
			continue
		}
		key, value, ok := strings.Cut(e, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if key = strings.TrimSpace(key); !ok || key == "" || err != nil {
			return errors.New("is not key=value, comma separated, with values percent-encoded")
		}
		if len(c.Tracing.Attributes) == maxAttributes {
			return fmt.Errorf("holds more than %d attributes", maxAttributes)
		}
		c.Tracing.Attributes = append(c.Tracing.Attributes, [2]string{key, value})
	}
	return nil
}
