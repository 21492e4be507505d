package memstore_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const idPeriod = 5 * time.Minute

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB, now func() time.Time) engine.Store {
			store := memstore.New(memstore.Options{Now: now, IDPeriod: idPeriod})
			t.Cleanup(store.Close)
			return store
		},
		IDPeriod: idPeriod,
	})
}
