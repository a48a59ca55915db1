package handlers

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/redact"
)

// joinProperties are the properties of a join that we use or check, with Agora's limits. Clients
// send zero values for optional fields, so zero means absent. Other keys are ignored.
type joinProperties struct {
	Channel     string    `json:"channel" validate:"max=512"`
	Token       *string   `json:"token"`
	AgentUID    *string   `json:"agent_rtc_uid"`
	RemoteUIDs  []string  `json:"remote_rtc_uids" validate:"max=128"`
	StringUID   bool      `json:"enable_string_uid"`
	IdleTimeout *int      `json:"idle_timeout" validate:"omitempty,min=0,max=259200"`
	Labels      labels    `json:"labels" validate:"max=128"`
	Geofence    *geofence `json:"geofence"`
	Features    struct {
		RTM   bool `json:"enable_rtm"`
		SAL   bool `json:"enable_sal"`
		Tools bool `json:"enable_tools"`
		MLLM  bool `json:"enable_mllm"`
	} `json:"advanced_features"`
	LLM  llmProperties `json:"llm"`
	MLLM struct {
		Enable bool            `json:"enable"`
		URL    string          `json:"url"`
		APIKey string          `json:"api_key" validate:"max=8192"`
		Vendor string          `json:"vendor" validate:"max=64"`
		Params json.RawMessage `json:"params"`
	} `json:"mllm"`
	TTS ttsProperties `json:"tts"`
	RTC struct {
		Mode int `json:"encryption_mode" validate:"omitempty,min=1,max=8"`
	} `json:"rtc"`
	ASR struct {
		CredentialMode string `json:"credential_mode" validate:"omitempty,oneof=managed byok"`
		Language       string `json:"language" validate:"max=64"`
		Vendor         string `json:"vendor" validate:"max=64"`
	} `json:"asr"`
	SAL struct {
		Mode string `json:"sal_mode" validate:"omitempty,oneof=locking recognition"`
	} `json:"sal"`
	Turns      turnDetection      `json:"turn_detection"`
	Interrupts interruptionConfig `json:"interruption"`
	Fillers    fillerWords        `json:"filler_words"`
	Parameters parameters         `json:"parameters"`
	// Heardlog holds our own settings.
	Heardlog struct {
		// Keys find the agent of a request that does not name it ("vapi.call:…"); see GET
		// /v1/profiles.
		Keys         []string            `json:"keys" validate:"max=16,dive,required,max=256"`
		Projection   string              `json:"projection" validate:"omitempty,oneof=heard_only heard_marked heard_and_unsaid generated"`
		Words        projectionWords     `json:"projection_words"`
		Transform    transformProperties `json:"transform"`
		Model        string              `json:"memory_model"`
		Policy       json.RawMessage     `json:"policy"`
		Mode         string              `json:"mode" validate:"omitempty,oneof=inject reconcile"`
		Duplicates   string              `json:"duplicates" validate:"omitempty,oneof=supersede join"`
		OnQuestion   string              `json:"on_new_question" validate:"omitempty,oneof=cut keep"`
		OnDisconnect string              `json:"on_disconnect" validate:"omitempty,oneof=cancel drain"`
		Timeouts     struct {
			ConnectMS    int `json:"connect_ms" validate:"omitempty,min=10,max=60000"`
			FirstTokenMS int `json:"first_token_ms" validate:"omitempty,min=10,max=3600000"`
			IdleMS       int `json:"idle_ms" validate:"omitempty,min=10,max=3600000"`
			TotalMS      int `json:"total_ms" validate:"omitempty,min=10,max=86400000"`
		} `json:"timeouts"`
		Upstreams []upstreamProperties `json:"upstreams" validate:"max=8,dive"`
		Realtime  *realtimeProperties  `json:"realtime"`
		Session   sessionProperties    `json:"session"`
		Working   workingProperties    `json:"working_memory"`
		Scope     *messageScope        `json:"scope"`
		Redact    redact.Rules         `json:"redact"`
		Remember  json.RawMessage      `json:"remember"`
	} `json:"heardlog"`
}

// labels are an agent's labels. Their errors name the key.
type labels map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (l *labels) UnmarshalJSON(b []byte) error {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(b, &in); err != nil {
		return fault.At(fault.Invalid, "properties.labels", "must be an object, not a JSON %s", jsonKind(b))
	}
	*l = make(labels, len(in))
	for k, raw := range in {
		var v string
		field := fmt.Sprintf("properties.labels[%q]", text.Clip(k, 60))
		if err := json.Unmarshal(raw, &v); err != nil {
			return fault.At(fault.Invalid, field, "must be a string, not a JSON %s", jsonKind(raw))
		}
		if strings.ContainsRune(k, 0) {
			return fault.At(fault.Invalid, field, "must not contain a NUL character in its name")
		}
		(*l)[k] = withoutNUL(v)
	}
	return nil
}

// withoutNUL returns a text with U+FFFD in place of each NUL.
func withoutNUL(s string) string { return strings.ReplaceAll(s, "\x00", "\uFFFD") }

// jsonKind returns what kind a valid JSON value has.
func jsonKind(v []byte) string {
	switch v[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	}
	return "number"
}

type geofence struct {
	Area    string `json:"area" validate:"omitempty,oneof=GLOBAL NORTH_AMERICA EUROPE ASIA INDIA JAPAN"`
	Exclude string `json:"exclude_area" validate:"omitempty,oneof=NORTH_AMERICA EUROPE ASIA INDIA JAPAN"`
}

type llmProperties struct {
	URL            string            `json:"url" validate:"max=2048"`
	APIKey         string            `json:"api_key" validate:"max=8192"`
	CredentialMode string            `json:"credential_mode" validate:"omitempty,oneof=managed byok"`
	Vendor         string            `json:"vendor" validate:"max=64"`
	Style          string            `json:"style" validate:"omitempty,oneof=openai gemini anthropic dify bedrock"`
	Model          string            `json:"model" validate:"max=256"`
	SystemMessages []json.RawMessage `json:"system_messages" validate:"max=256"`
	Params         json.RawMessage   `json:"params"`
	// Members, and those of promptProperties, are our own settings.
	Members []string `json:"message_members" validate:"max=64,dive,required,max=64"`
	promptProperties
	MaxHistory       int      `json:"max_history" validate:"omitempty,min=1,max=1024"`
	Input            []string `json:"input_modalities" validate:"max=8,dive,oneof=text image audio"`
	Output           []string `json:"output_modalities" validate:"max=8,dive,oneof=text audio"`
	Greeting         string   `json:"greeting_message"`
	GreetingAudioURL string   `json:"greeting_audio_url" validate:"max=2048"`
	GreetingConfigs  struct {
		Mode       string `json:"mode" validate:"omitempty,oneof=single_every single_first"`
		DelayMS    int    `json:"delay_ms" validate:"min=0,max=5000"`
		DownloadMS int    `json:"audio_download_timeout_ms" validate:"omitempty,min=200,max=10000"`
		SampleRate int    `json:"audio_pcm_sample_rate" validate:"min=0"`
	} `json:"greeting_configs"`
	Failure    string            `json:"failure_message"`
	Variables  map[string]string `json:"template_variables" validate:"max=256"`
	Headers    map[string]string `json:"headers" validate:"max=64"`
	MCPServers []struct {
		Name      string `json:"name" validate:"required,max=48"`
		Endpoint  string `json:"endpoint" validate:"required,max=2048"`
		Transport string `json:"transport" validate:"omitempty,oneof=streamable_http"`
	} `json:"mcp_servers" validate:"max=64,dive"`
}

type ttsProperties struct {
	Vendor       string          `json:"vendor" validate:"max=64"`
	Params       json.RawMessage `json:"params"`
	SkipPatterns []int           `json:"skip_patterns" validate:"dive,min=1,max=5"`
}

type turnDetection struct {
	Config struct {
		Threshold     float64 `json:"speech_threshold" validate:"omitempty,gt=0,lt=1"`
		StartOfSpeech struct {
			Mode string `json:"mode" validate:"omitempty,oneof=vad manual keywords disabled"`
			VAD  struct {
				InterruptMS int `json:"interrupt_duration_ms" validate:"omitempty,min=120,max=1200"`
				SpeakingMS  int `json:"speaking_interrupt_duration_ms" validate:"omitempty,min=120,max=1200"`
				PrefixMS    int `json:"prefix_padding_ms" validate:"min=0,max=5000"`
			} `json:"vad_config"`
		} `json:"start_of_speech"`
		EndOfSpeech struct {
			Mode string `json:"mode" validate:"omitempty,oneof=vad semantic manual"`
			VAD  struct {
				SilenceMS int `json:"silence_duration_ms" validate:"omitempty,min=120,max=2000"`
			} `json:"vad_config"`
			Semantic struct {
				MaxWaitMS int `json:"max_wait_ms" validate:"omitempty,eq=-1|min=500,max=10000"`
			} `json:"semantic_config"`
		} `json:"end_of_speech"`
	} `json:"config"`
	Keywords []string `json:"interrupt_keywords" validate:"max=128"`
}

type interruptionConfig struct {
	Mode     string `json:"mode" validate:"omitempty,oneof=start_of_speech keywords"`
	Keywords struct {
		Trigger []string `json:"trigger_keywords" validate:"max=128"`
	} `json:"keywords_config"`
	Disabled struct {
		Strategy string `json:"strategy" validate:"omitempty,oneof=append ignore"`
	} `json:"disabled_config"`
}

type fillerWords struct {
	Enable  bool `json:"enable"`
	Trigger struct {
		Mode  string `json:"mode" validate:"omitempty,oneof=fixed_time"`
		Fixed struct {
			WaitMS int `json:"response_wait_ms" validate:"omitempty,min=100,max=10000"`
		} `json:"fixed_time_config"`
	} `json:"trigger"`
	Content struct {
		Static struct {
			Phrases []string `json:"phrases" validate:"max=100"`
			Rule    string   `json:"selection_rule" validate:"omitempty,oneof=shuffle round_robin"`
		} `json:"static_config"`
	} `json:"content"`
}

type parameters struct {
	DataChannel   string `json:"data_channel" validate:"omitempty,oneof=datastream rtm"`
	AudioScenario string `json:"audio_scenario" validate:"omitempty,oneof=default chorus aiserver"`
	Silence       struct {
		TimeoutMS int    `json:"timeout_ms" validate:"min=0,max=60000"`
		Action    string `json:"action" validate:"omitempty,oneof=speak think"`
		Content   string `json:"content"`
	} `json:"silence_config"`
	Farewell struct {
		Graceful bool `json:"graceful_enabled"`
		TimeoutS *int `json:"graceful_timeout_seconds" validate:"omitempty,min=0,max=120"`
	} `json:"farewell_config"`
}
