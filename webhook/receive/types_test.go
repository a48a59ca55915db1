package receive_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/webhook/receive"
)

// TestTypes checks that the numbers here, which stand alone so that receivers depend on nothing
// else, are those that the server sends.
func TestTypes(t *testing.T) {
	t.Parallel()
	same := map[int]int{
		receive.TypeJoined: event.Joined, receive.TypeLeft: event.Left, receive.TypeHistory: event.History, receive.TypeExpiring: event.Expiring,
		receive.TypeFailed: event.Error, receive.TypeMetrics: event.Metrics, receive.TypeTurns: event.Turns, receive.TypeInterrupted: event.Interrupted,
		receive.TypeMessage: event.Message, receive.TypeScored: event.Scored, receive.TypeDeliveryDead: event.DeliveryDead, receive.TypeEndpointDisabled: event.EndpointDisabled,
		receive.TypeTest: event.Test, receive.TypeFactAdded: event.FactAdded, receive.TypeFactSuperseded: event.FactSuperseded,
		receive.TypeFactWithdrawn: event.FactWithdrawn, receive.TypeFactExpired: event.FactExpired,
		receive.TypeUserErased: event.UserErased, receive.TypeKVProvider: event.KVProvider,
	}
	if len(same) != len(event.Types()) {
		t.Errorf("%d types here, %d are sent", len(same), len(event.Types()))
	}
	for here, sent := range same {
		if here != sent {
			t.Errorf("%d here is %d when sent", here, sent)
		}
	}
}
