package schema

// entityChecks are the rules about several settings at once that Kong can check. A wrong name in one of them is not noticed
// by Kong, so the test of Dump looks them up. The plugin checks the same and more when a config arrives.
func entityChecks() list {
	periods, simple, all := list{}, list{}, list{}
	for _, period := range Periods {
		periods = append(periods, "config."+period)
	}
	simple = append(append(simple, periods...), "config.limit", "config.window_size")
	all = append(append(all, periods...), "config.limit", "config.descriptors")
	checks := list{
		object{{"at_least_one_of", all}},
		object{{"mutually_exclusive_sets", object{{"set1", simple}, {"set2", list{"config.descriptors"}}}}},
		object{{"mutually_exclusive_sets", object{{"set1", periods}, {"set2", list{"config.limit", "config.window_size"}}}}},
		object{{"mutually_required", list{"config.limit", "config.window_size"}}},
	}
	for _, by := range []struct{ way, needs string }{
		{"header", "header_name"},
		{"query_arg", "query_arg"},
		{"jwt_claim", "claim_name"},
	} {
		checks = append(checks, object{{"conditional", object{
			{"if_field", "config.limit_by"},
			{"if_match", object{{"eq", by.way}}},
			{"then_field", "config." + by.needs},
			{"then_match", object{{"required", true}}},
		}}})
	}
	return checks
}
