package llmadapter

import (
	"encoding/json"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

// OneModel returns the model with an ID from an upstream's list of models. It fails with
// fault.NotFound.
func OneModel(list []byte, id string) ([]byte, error) {
	var all struct{ Data []json.RawMessage }
	err := json.Unmarshal(list, &all)
	for _, m := range all.Data {
		var head struct{ ID string }
		if json.Unmarshal(m, &head) == nil && head.ID == id {
			return m, nil
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.Upstream, err, "the upstream's list of models is not one of OpenAI's form")
	}
	return nil, fault.At(fault.NotFound, "model", "%q is not in the upstream's list of models, see GET /v1/models", text.Clip(id, 80))
}
