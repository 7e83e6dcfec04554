#include "levin/core/options/registry.h"

#include <gtest/gtest.h>

#include "support/captured_console.h"
#include "support/error_text.h"

namespace levin::registry_test {
namespace {

using test::error_of;

struct Animal {
  static std::string registry_name() { return "animal"; }
  virtual ~Animal() = default;
  [[nodiscard]] virtual int64_t legs() const = 0;
};

struct DogOptions {
  int64_t legs = 4;
  static auto fields() { return levin::fields(field("legs", &DogOptions::legs, "how many").min(1)); }
};

struct Dog : Animal {
  using Options = DogOptions;
  explicit Dog(DogOptions options = {}) : options_(options) {}
  [[nodiscard]] int64_t legs() const override { return options_.legs; }
  DogOptions options_;
};

struct Snake : Animal {
  [[nodiscard]] int64_t legs() const override { return 0; }
};

const Registry<Animal>& animals() {
  static const Registry<Animal> registry = [] {
    Registry<Animal> made;
    made.add<Snake>("Snake", "hisses");
    made.add<Dog>("Dog", "barks");
    return made;
  }();
  return registry;
}

ClassSpec spec(const std::string& name, const std::string& legs = "") {
  ClassSpec made(name, {}, {"run.yaml", 3, 5});
  if (!legs.empty()) made.init_args.set("legs", ConfigNode::scalar(legs));
  return made;
}

TEST(Registry, BuildsClassesByName) {
  EXPECT_EQ(animals().make(spec("Dog"), "pet")->legs(), 4);
  EXPECT_EQ(animals().make(spec("Dog", "3"), "pet")->legs(), 3);
  EXPECT_EQ(animals().make(spec("Snake"), "pet")->legs(), 0);
  EXPECT_EQ(animals().make(spec("my.zoo.Dog", "2"), "pet")->legs(), 2);
}

TEST(Registry, NamesTheNearestOfUnknownClasses) {
  EXPECT_EQ(error_of<Error>([] { (void)animals().make(spec("Dogg"), "pets[0]"); }),
            "run.yaml:3:5: pets[0]: unknown animal \"Dogg\". Did you mean \"Dog\"? Known: Dog, Snake.");
}

TEST(Registry, ReportsHowToRegisterAUserDefinedClassWhereNoNameIsNear) {
  EXPECT_EQ(error_of<Error>([] { (void)animals().make(spec("Elephant"), "pets[0]"); }),
            "run.yaml:3:5: pets[0]: unknown animal \"Elephant\". Known: Dog, Snake. A class of your own must be "
            "registered in this program, or in a library that plugins names.");
}

TEST(Registry, ReportsWhereOptionsAreWrong) {
  EXPECT_EQ(error_of<Error>([] { (void)animals().make(spec("Dog", "0"), "pets[0]"); }),
            "pets[0].init_args.legs: must be >= 1, got 0.");
  EXPECT_EQ(error_of<Error>([] { (void)animals().make(spec("Snake", "1"), "pets[0]"); }),
            "pets[0].init_args.legs: unknown key \"legs\". Known: none.");
}

TEST(Registry, ResolvesASpecWithEveryOptionFilledIn) {
  Problems problems;
  const ClassSpec resolved = animals().resolve(spec("zoo.Dog"), "pet", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(resolved.class_path, "Dog");
  ASSERT_NE(resolved.init_args.find("legs"), nullptr);
  EXPECT_EQ(resolved.init_args.find("legs")->text, "4");
  EXPECT_EQ(resolved.mark.str(), "run.yaml:3:5");
  (void)animals().resolve(spec("Cat"), "pet", problems);
  (void)animals().resolve(spec("Dog", "x"), "pet", problems);
  EXPECT_EQ(problems.size(), 2u);
}

TEST(Registry, RefusesASecondClassOfTheSameNameAndShowsBothPlaces) {
  Registry<Animal> registry;
  registry.add<Dog>("Dog", "barks");
  const std::string what = error_of<Error>([&] { registry.add<Snake>("Dog", "hisses"); });
  EXPECT_EQ(what.find("two animals are registered as \"Dog\": "), 0u) << what;
  const size_t first = what.find("registry_test.cpp:");
  EXPECT_NE(first, std::string::npos);
  EXPECT_NE(what.find("registry_test.cpp:", first + 1), std::string::npos) << what;
  EXPECT_NE(what.find("Rename one"), std::string::npos);
  EXPECT_EQ(registry.names(), std::vector<std::string>{"Dog"});
}

TEST(Registry, KnowsNamesDocsAndOptions) {
  EXPECT_EQ(animals().names(), (std::vector<std::string>{"Snake", "Dog"}));
  const auto* dog = animals().find("Dog");
  ASSERT_NE(dog, nullptr);
  EXPECT_EQ(dog->doc, "barks");
  EXPECT_EQ(dog->describe().at(0).name, "legs");
  EXPECT_EQ(animals().find("Cat"), nullptr);
}

TEST(Registry, AnAliasIsTakenAsTheClassItStandsForAndReported) {
  Registry<Animal> registry;
  registry.add<Dog>("Dog", "barks");
  ConfigNode three = ConfigNode::map();
  three.set("legs", ConfigNode::scalar("3"));
  registry.add_alias("Tripod", "Dog", three);
  const test::CapturedConsole console;
  EXPECT_EQ(registry.make(spec("zoo.Tripod"), "pet")->legs(), 3);
  EXPECT_EQ(registry.make(spec("Tripod", "5"), "pet")->legs(), 5);  // what is given counts
  EXPECT_TRUE(console.has("animal \"zoo.Tripod\" is called Dog with legs: 3 here. It is taken as that."))
      << console.text();
  EXPECT_EQ(registry.names(), std::vector<std::string>{"Dog"});
  EXPECT_EQ(registry.aliases(), std::vector<std::string>{"Tripod"});
}

TEST(ClassSpec, IsANameOrAMap) {
  Problems problems;
  ClassSpec read;
  EXPECT_TRUE(ValueType<ClassSpec>::read(ConfigNode::scalar("Dog"), read, "pet", problems));
  EXPECT_EQ(read.class_path, "Dog");
  ConfigNode node = ValueType<ClassSpec>::write(spec("a.b.Dog", "3"));
  EXPECT_TRUE(ValueType<ClassSpec>::read(node, read, "pet", problems));
  EXPECT_EQ(read.class_path, "a.b.Dog");
  EXPECT_EQ(read.short_name(), "Dog");
  EXPECT_EQ(read.init_args.find("legs")->text, "3");
  EXPECT_TRUE(problems.empty());
}

TEST(ClassSpec, RefusesAnythingElse) {
  ConfigNode no_name = ConfigNode::map();
  no_name.set("init_args", ConfigNode::map());
  ConfigNode typo = ConfigNode::map();
  typo.set("class_pth", ConfigNode::scalar("Dog"));
  ConfigNode empty = ConfigNode::map();
  empty.set("class_path", ConfigNode::scalar("", true));
  Problems problems;
  ClassSpec read;
  for (const ConfigNode& node :
       {ConfigNode{}, ConfigNode::list(), ConfigNode::scalar("", true), no_name, typo, empty}) {
    EXPECT_FALSE(ValueType<ClassSpec>::read(node, read, "pet", problems)) << to_yaml(node);
  }
  ASSERT_EQ(problems.size(), 6u);
  EXPECT_EQ(problems.lines()[0], "pet: expected a class name, or a map with class_path and init_args, got null.");
  EXPECT_EQ(problems.lines()[2], "pet: expected a class name, got \"\".");
  EXPECT_EQ(problems.lines()[3], "pet: class_path is missing: write {class_path: NAME, init_args: {…}}.");
  EXPECT_NE(problems.lines()[4].find("unknown key \"class_pth\". Did you mean \"class_path\"?"), std::string::npos);
  EXPECT_EQ(problems.lines()[5], "pet.class_path: expected a class name, got \"\".");
}

}  // namespace
}  // namespace levin::registry_test
