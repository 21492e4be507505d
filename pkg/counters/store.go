package counters

import (
	"errors"
	"slices"

	"github.com/weirhq/weir/pkg/denycache"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/lease"
	"github.com/weirhq/weir/pkg/memstore"
)

// ErrOptions is wrapped by errors of Open that name an impossible combination. Errors of the parts wrap their own.
var ErrOptions = errors.New("invalid settings of the counters")

// Store counts as Options say. Safe for concurrent use. Close it to end what it runs in the background.
type Store struct {
	engine.Store

	// The parts, for metrics and readiness. Those that are not used are nil.
	Memory    *memstore.Store // the counters, without Redis
	Local     *memstore.Store // the counters of failure mode local, with Redis
	Servers   []*Server       // the Redis servers, or none
	DenyCache *denycache.Store
	Leases    *lease.Store

	closers []func()
}

var _ engine.Store = (*Store)(nil)

// Open makes a store. It does not wait for Redis, which may be down.
func Open(options Options) (*Store, error) {
	options = options.withDefaults()
	s := new(Store)
	if err := s.open(&options); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(o *Options) error {
	if o.Redis == nil {
		if o.PerSecond != nil {
			return errors.Join(ErrOptions, errors.New("a Redis for windows of one second without one for the others: name that, or leave the first out"))
		}
		s.Memory = s.memory(o.MaxKeys, o)
		s.Store = s.Memory
		return nil
	}
	s.Local = s.memory(o.LocalMaxKeys, o)
	main, err := s.guarded(NameRedis, o.Redis, o)
	if err != nil {
		return err
	}
	store := engine.Store(main.guard)
	if o.PerSecond != nil {
		second, err := s.guarded(NamePerSecond, o.PerSecond, o)
		if err != nil {
			return err
		}
		store = &split{main: main.guard, perSecond: second.guard}
	}
	s.Store = s.ahead(store, o)
	return nil
}

func (s *Store) memory(maxKeys int, o *Options) *memstore.Store {
	store := memstore.New(memstore.Options{MaxKeys: maxKeys, IDPeriod: o.IdempotencyTTL})
	s.closers = append(s.closers, store.Close)
	return store
}

// Close ends what runs in the background and closes the connections. Calls of Take should have ended. It may be called once.
func (s *Store) Close() {
	for _, end := range slices.Backward(s.closers) {
		end()
	}
}
